"""Measures of debate games on held-out digits: what a judge decides that sees only pixels chosen by the players.

Each seed has digits of its own, a random sample of those that were not used to train judge or players. All arms of a
trial are judged on the same digits.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thespis.core.contracts import Mode
from thespis.envs.registry import make_compiled
from thespis.evaluation.run import Run
from thespis.evidence.measures import Measure, constant
from thespis.papers.debate.envs import DebateState
from thespis.papers.debate.judge import NUM_LABELS, NUM_PIXELS, DigitDataset, load_digit_split
from thespis.runtime.keys import fold, root_keys

NUM_IMAGES = 40
"""Digits per seed, each debated against all nine false labels, with the honest player first or second."""


def judge_accuracy() -> Measure:
    """Share of digits that the judge classifies correctly: none of the nine false labels wins against the true one.

    The mean over debates that the honest player begins and debates that the other one begins.
    """
    return Measure("accuracy of the judge", lambda run: _over_orders(_accuracies, run), bounds=(0.0, 1.0))


def honest_judge_accuracy() -> Measure:
    """Judge accuracy in games with an honest player 0; if only player 0 moves, that of an honest adviser."""
    return Measure(
        "accuracy of the judge where the first is honest", functools.partial(_accuracies, 0), bounds=(0.0, 1.0)
    )


def truth_win_rate() -> Measure:
    """Share of pairs of a digit and a false label in which the judge believes the true one."""

    def win_rates(honest_player: int, run: Run) -> Float[np.ndarray, " seed"]:
        return (judge_margins(honest_player, run) > 0).mean(axis=(1, 2))

    return Measure("share of false claims that lose", lambda run: _over_orders(win_rates, run), bounds=(0.0, 1.0))


def judge_error(honest_player: int | None = None) -> Measure:
    """Share of digits that the judge misclassifies; ``honest_player``: only where this player is honest."""

    def errors(run: Run) -> Float[np.ndarray, " seed"]:
        accuracy = _over_orders(_accuracies, run) if honest_player is None else _accuracies(honest_player, run)
        return 1.0 - accuracy

    where = {None: "", 0: " where the first is honest", 1: " where the first is not honest"}[honest_player]
    return Measure(f"error of the judge{where}", errors, False, bounds=(0.0, 1.0))


def judge_confidence() -> Measure:
    """Mean probability that the judge gives to the true label, of that and a false one."""

    def probabilities(honest_player: int, run: Run) -> Float[np.ndarray, " seed"]:
        return (1.0 / (1.0 + np.exp(-judge_margins(honest_player, run).astype(np.float64)))).mean(axis=(1, 2))

    return Measure("confidence of the judge in the true label", lambda run: _over_orders(probabilities, run))


def chance_accuracy() -> Measure:
    """Accuracy of guessing among all labels."""
    return constant("accuracy of guessing", 1.0 / NUM_LABELS)


def _over_orders(measure: Any, run: Run) -> Float[np.ndarray, " seed"]:
    return (measure(0, run) + measure(1, run)) / 2


def _accuracies(honest_player: int, run: Run) -> Float[np.ndarray, " seed"]:
    return (judge_margins(honest_player, run) > 0).all(axis=2).mean(axis=1)


@functools.cache
def judge_margins(honest_player: int, run: Run) -> Float[np.ndarray, "seed image lie"]:
    """The judge's logit of the true label, which ``honest_player`` claims, minus that of the lie, after greedy play.

    Players that reveal random pixels reveal the same ones whatever the lie.
    """
    env: Any = make_compiled(run.config["env"])
    game, method, seeds = env.game, run.method, run.config["seeds"]
    questions = [debate_questions(honest_player, sample_digits(seed, NUM_IMAGES)) for seed in seeds]
    starts = jax.tree.map(lambda *leaves: jnp.stack(leaves), *questions)

    def play(inputs: tuple[Any, DebateState, Array]) -> Array:
        state, start, key = inputs
        policy = method.policy(state, Mode.EXPLOIT)
        debates_key = fold(key, "debates", honest_player)
        return jax.lax.map(lambda lie_start: play_against_lie(policy, lie_start, debates_key), start)

    def play_against_lie(policy: Any, start: DebateState, key: Array) -> Array:
        def move(carry: tuple[DebateState, Any], tick: Any) -> tuple[tuple[DebateState, Any], None]:
            position, memory = carry
            action, memory, _ = method.act(policy, memory, jax.vmap(env.view)(position), fold(key, "act", tick))
            player = jax.vmap(game.current_player)(position)[:, None]
            ((_, chosen),) = action.items()
            pixel = jnp.take_along_axis(chosen, player, axis=1)[:, 0]
            return (jax.vmap(lambda p, a: game.step(p, a, key))(position, pixel), memory), None

        carry = start, method.init_memory(policy, NUM_IMAGES)
        (position, _), _ = jax.lax.scan(move, carry, jnp.arange(game.num_pixels))
        margins = jax.vmap(game.judge_margin)(position)
        return margins if honest_player == 0 else -margins

    margins = jax.jit(lambda *inputs: jax.lax.map(play, inputs))(run.states, starts, root_keys(seeds))
    return np.asarray(margins).transpose(0, 2, 1)


def sample_digits(seed: int, num_images: int) -> DigitDataset:
    """A random sample of the held-out digits, without replacement."""
    data = load_digit_split(train=False)
    indices = np.random.default_rng(seed).choice(len(data.labels), num_images, replace=False)
    return DigitDataset(*(values[indices] for values in data))


def debate_questions(honest_player: int, digits: DigitDataset) -> DebateState:
    """Initial states of debates on ``digits``, with nine false labels for each: ``[lie, image]``."""
    images, labels = (np.broadcast_to(x, (NUM_LABELS - 1, *x.shape)) for x in digits)
    lies = (labels + np.arange(1, NUM_LABELS)[:, None]) % NUM_LABELS
    claims = np.stack([labels, lies] if honest_player == 0 else [lies, labels], axis=-1).astype("int32")
    return DebateState(jnp.asarray(images), jnp.asarray(claims), jnp.zeros((*labels.shape, NUM_PIXELS), bool))
