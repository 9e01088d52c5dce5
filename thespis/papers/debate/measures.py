"""Measures of debate games on held-out digits: accuracy of a judge that sees only pixels chosen by the players."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from thespis.core.contracts import Mode
from thespis.envs.registry import make_compiled
from thespis.evaluation.run import Run
from thespis.evidence.measures import Measure
from thespis.papers.debate.envs import DebateState
from thespis.papers.debate.judge import (
    NUM_LABELS,
    NUM_PIXELS,
    DigitDataset,
    load_digit_split,
    random_pixel_judge_accuracy,
    trained_judge,
)
from thespis.runtime.keys import fold, seed_key

NUM_IMAGES = 40
"""Digits per seed, each debated against all nine false labels, with the honest player first or second."""


def judge_accuracy() -> Measure:
    """Share of digits that the judge classifies correctly: none of the nine false labels wins against the true one."""
    return Measure("accuracy of the judge", lambda run: (_accuracy_by_seed(0, run) + _accuracy_by_seed(1, run)) / 2)


def honest_judge_accuracy() -> Measure:
    """Judge accuracy in games with an honest player 0; if only player 0 moves, that of an honest adviser."""
    return Measure("accuracy of the judge where the first is honest", functools.partial(_accuracy_by_seed, 0))


def judge_accuracy_gain() -> Measure:
    """Judge accuracy minus the accuracy with the same number of random pixels."""

    def gain(run: Run) -> Float[np.ndarray, " seed"]:
        return judge_accuracy().compute(run) - _random_pixel_accuracy(
            make_compiled(run.config["env"]).spec.game.num_pixels
        )

    return Measure("accuracy of the judge beyond that with random pixels", gain)


@functools.cache
def _random_pixel_accuracy(num_pixels: int) -> float:
    """The judge's accuracy with ``num_pixels`` random non-zero pixels, against all nine false labels."""
    data = load_digit_split(train=False)
    return float(
        np.mean(
            [random_pixel_judge_accuracy(trained_judge(num_pixels), num_pixels, data, seed_key(i)) for i in range(10)]
        )
    )


def _accuracy_by_seed(honest_player: int, run: Run) -> Float[np.ndarray, " seed"]:
    return judge_decisions(honest_player, run).all(axis=2).mean(axis=1)


@functools.cache
def judge_decisions(honest_player: int, run: Run) -> Bool[np.ndarray, "seed image lie"]:
    """Judge decisions after greedy play: whether it believes the true label, claimed by ``honest_player``."""
    env: Any = make_compiled(run.config["env"])
    start, game, method = debate_questions(honest_player, NUM_IMAGES), env.game, run.method
    num_games = start.claims.shape[0]

    def play(state: Any) -> Any:
        policy, key = method.policy(state, Mode.EXPLOIT), fold(seed_key(0), "debates")

        def move(carry: tuple[DebateState, Any], tick: Any) -> tuple[tuple[DebateState, Any], None]:
            position, memory = carry
            action, memory, _ = method.act(policy, memory, jax.vmap(env.view)(position), fold(key, "act", tick))
            player = jax.vmap(game.current_player)(position)[:, None]
            ((_, chosen),) = action.items()
            pixel = jnp.take_along_axis(chosen, player, axis=1)[:, 0]
            return (jax.vmap(lambda p, a: game.step(p, a, key))(position, pixel), memory), None

        (position, _), _ = jax.lax.scan(
            move, (start, method.init_memory(policy, num_games)), jnp.arange(game.num_pixels)
        )
        return jax.vmap(game.rewards)(position)[:, honest_player] > 0

    decisions = jax.jit(lambda states: jax.lax.map(play, states))(run.states)
    return np.asarray(decisions).reshape(len(decisions), -1, NUM_LABELS - 1)


def debate_questions(honest_player: int, num_images: int) -> DebateState:
    """Initial states of debates on ``num_images`` test digits, with nine false labels for each: ``[image * lie]``."""
    data = DigitDataset(*(values[:num_images] for values in load_digit_split(train=False)))
    truth = np.repeat(data.labels, NUM_LABELS - 1)
    lie = (truth + np.tile(np.arange(1, NUM_LABELS), num_images)) % NUM_LABELS
    claims = np.stack([truth, lie] if honest_player == 0 else [lie, truth], axis=1).astype("int32")
    images = jnp.asarray(np.repeat(data.images, NUM_LABELS - 1, axis=0))
    return DebateState(images, jnp.asarray(claims), jnp.zeros((len(truth), NUM_PIXELS), bool))
