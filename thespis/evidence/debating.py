"""How often a judge of pixels is right about digits that nobody has learnt by, when others choose what it sees."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from thespis.core.contracts import Mode
from thespis.core.keys import fold, key_of
from thespis.envs.games.debate import Question
from thespis.envs.games.digits import LABELS, PIXELS, Digits, accuracy, digits, judge_of
from thespis.envs.registry import compiled
from thespis.evidence.measures import Measure
from thespis.trained import Run

IMAGES = 40
"""Digits per seed, each debated against all nine lies, the honest player first or second."""


def judge_accuracy() -> Measure:
    """Share of digits that the judge tells right: no lie of the nine wins against the truth."""
    return Measure("accuracy of the judge", lambda run: (_right(0, run) + _right(1, run)) / 2)


def judge_accuracy_if_honest() -> Measure:
    """The same of games in which player 0 is honest: where it alone speaks, that of an honest adviser."""
    return Measure("accuracy of the judge where the first is honest", functools.partial(_right, 0))


def help_to_judge() -> Measure:
    """By how much the judge is right more often than from as many random pixels."""

    def of(run: Run) -> Float[np.ndarray, " seed"]:
        return judge_accuracy().of(run) - _unaided(compiled(run.config["env"]).spec.game.pixels)

    return Measure("accuracy of the judge beyond that with random pixels", of)


@functools.cache
def _unaided(count: int) -> float:
    """Accuracy with so many random pixels that are not 0, of telling one digit from all nine others."""
    data = digits(seen=False)
    return float(np.mean([accuracy(judge_of(count), count, data, key_of(draw)) for draw in range(10)]))


def _right(honest: int, run: Run) -> Float[np.ndarray, " seed"]:
    return judged(honest, run).all(axis=2).mean(axis=1)


@functools.cache
def judged(honest: int, run: Run) -> Bool[np.ndarray, "seed image lie"]:
    """Whether the judge believes the truth, claimed by player ``honest``, after greedy play."""
    world: Any = compiled(run.config["env"])
    begun, game, method = questions(honest, IMAGES), world.game, run.method
    rows = begun.claims.shape[0]

    def play(state: Any) -> Any:
        policy, key = method.policy(state, Mode.EXPLOIT), fold(key_of(0), "debates")

        def move(carry: tuple[Question, Any], tick: Any) -> tuple[tuple[Question, Any], None]:
            position, memory = carry
            action, memory, _ = method.act(policy, memory, jax.vmap(world.view)(position), fold(key, "act", tick))
            mover = jax.vmap(game.player)(position)[:, None]
            ((_, chosen),) = action.items()
            pixel = jnp.take_along_axis(chosen, mover, axis=1)[:, 0]
            return (jax.vmap(lambda p, a: game.play(p, a, key))(position, pixel), memory), None

        (position, _), _ = jax.lax.scan(move, (begun, method.begin(policy, rows)), jnp.arange(game.pixels))
        return jax.vmap(game.payoff)(position)[:, honest] > 0

    found = jax.jit(lambda states: jax.lax.map(play, states))(run.states)
    return np.asarray(found).reshape(len(found), -1, LABELS - 1)


def questions(honest: int, count: int) -> Question:
    """Debates on ``count`` digits that nobody has learnt by, with all nine lies about each: ``[image * lie]``."""
    data = Digits(*(values[:count] for values in digits(seen=False)))
    truth = np.repeat(data.labels, LABELS - 1)
    lie = (truth + np.tile(np.arange(1, LABELS), count)) % LABELS
    claims = np.stack([truth, lie] if honest == 0 else [lie, truth], axis=1).astype("int32")
    images = jnp.asarray(np.repeat(data.images, LABELS - 1, axis=0))
    return Question(images, jnp.asarray(claims), jnp.zeros((len(truth), PIXELS), bool))
