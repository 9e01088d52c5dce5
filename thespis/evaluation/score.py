"""The final verdict on a run: greedy and sampled play, their statistics, and the critic against what came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from thespis.core.contracts import HostEnvironment, Method, Mode
from thespis.core.records import Critique, Transition
from thespis.evaluation.calibration import realised_returns
from thespis.evaluation.play import Played, play
from thespis.evaluation.statistics import interval, iqm
from thespis.runs.checkpoint import hash_tree

KEPT = 3  # episodes per seed that are kept whole, to judge the critic by
PAIRS = 2_000  # predictions written down, at most


def summary(played: Played) -> dict[str, Any]:
    """Scores per seed and episode, and over the seeds' mean returns the IQM with its interval."""
    scores = played.returns.mean(axis=1)
    return {
        "scores": played.returns.tolist(),
        "lengths": played.lengths.tolist(),
        "iqm": float(iqm(scores)),
        "interval": interval(scores),
        "seeds": len(scores),
        "episodes": played.returns.shape[1],
    }


def final_score(
    method: Method,
    states: PyTree,
    make_worlds: Callable[[int], HostEnvironment],
    seeds: list[int],
    episodes: int,
) -> dict[str, Any]:
    """The content of final.json: ``greedy`` and ``sampled`` play, calibration, and the hash of ``states``."""
    worlds = make_worlds(len(seeds) * episodes)
    try:
        greedy = play(method, states, worlds, seeds, Mode.EXPLOIT)
        sampled = play(method, states, worlds, seeds, Mode.SAMPLE, keep=min(KEPT, episodes))
    finally:
        worlds.close()
    return {
        "greedy": summary(greedy),
        "sampled": summary(sampled),
        "calibration": calibration(method, states, sampled.kept),
        "state_hash": hash_tree(states),
    }


def calibration(method: Method, states: PyTree, kept: list[list[Transition]]) -> dict[str, Any] | None:
    """Predicted values beside realised discounted returns, of steps whose outcome is known; ``None`` without a critic.

    Returns are discounted sums of the environment's reward and of what the critic says it counts beside it.
    """
    judge = jax.jit(lambda state, steps: method.judge(state, steps))
    of_seed = jax.jit(lambda states, s: jax.tree.map(lambda x: x[s], states))
    predicted, realised, seed, episode, discount = [], [], [], [], None
    for s, episodes in enumerate(kept):
        state = of_seed(states, s)
        for e, steps in enumerate(episodes):
            critique = judge(state, _padded(steps))
            if critique.value is None or critique.discount is None:
                return None
            discount = float(critique.discount)
            predicted.append(np.asarray(critique.value)[: len(steps.reward)])
            realised.append(_realised(steps, critique, discount))
            seed.append(np.full(len(steps.reward), s))
            episode.append(np.full(len(steps.reward), s * KEPT + e))
    value, outcome, index, number = (np.concatenate(x) for x in (predicted, realised, seed, episode))
    thin = slice(None, None, -(-len(value) // PAIRS))
    return {
        "predicted": value[thin].tolist(),
        "realised": [None if np.isnan(x) else float(x) for x in outcome[thin]],
        "seed": index[thin].tolist(),
        "episode": number[thin].tolist(),
        "discount": discount,
    }


def _realised(steps: Transition, critique: Critique, discount: float) -> np.ndarray:
    """What followed each step, in the critic's own currency: the bonus of a step belongs to those before it."""
    reward = np.asarray(steps.reward, np.float64)
    if critique.bonus is not None:
        bonus = np.asarray(critique.bonus, np.float64)[: len(reward)]
        reward = reward + discount * np.append(bonus[1:], 0.0)
    return realised_returns(reward, steps.terminated, steps.truncated, discount)


def _padded(steps: Transition) -> Transition:
    """The episode continued by copies of its last step to a length that is a power of two: few programs to compile.

    What a critic says of a step does not depend on later ones but through advantages, which are not used here.
    """
    length = len(steps.reward)
    room = 1 << (length - 1).bit_length()
    return jax.tree.map(lambda x: np.concatenate([x, np.repeat(x[-1:], room - length, axis=0)]), steps)
