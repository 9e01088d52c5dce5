"""Final evaluation of a run: greedy and sampled play, their statistics, and calibration of the critic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from thespis.core.contracts import HostEnvironment, Method, Mode
from thespis.core.records import Critique, Transition
from thespis.envs.return_bounds import return_bounds
from thespis.evaluation.calibration import realized_returns
from thespis.evaluation.rollout import RolloutResult, play_episodes
from thespis.evaluation.statistics import Interval, bootstrap_interval, iqm
from thespis.runs.checkpoint import hash_tree

NUM_KEPT_EPISODES = 3  # episodes per seed that are kept for calibration of the critic
MAX_PAIRS = 2_000  # predictions in final.json, at most


def summarize_returns(result: RolloutResult, bounds: Interval | None = None) -> dict[str, Any]:
    """Returns and lengths per seed and episode, and the IQM of the seeds' mean returns with its interval.

    The interval stays within ``bounds`` of the return, if they are known.
    """
    scores = result.episode_returns.mean(axis=1)
    return {
        "scores": result.episode_returns.tolist(),
        "lengths": result.episode_lengths.tolist(),
        "iqm": float(iqm(scores)),
        "interval": bootstrap_interval(scores, bounds=bounds),
        "seeds": len(scores),
        "episodes": result.episode_returns.shape[1],
    }


def greedy_returns(
    method: Method,
    states: PyTree,
    make_envs: Callable[[int], HostEnvironment],
    seeds: list[int],
    num_episodes: int,
) -> tuple[list[list[float]], dict[str, Any] | None]:
    """Returns of greedy play per seed and episode, as in :func:`evaluate_policy`, and the values of one episode each.

    The values are those of :func:`calibration_pairs`.
    """
    envs = make_envs(len(seeds) * num_episodes)
    try:
        result = play_episodes(method, states, envs, seeds, Mode.EXPLOIT, num_kept=1)
    finally:
        envs.close()
    return result.episode_returns.tolist(), calibration_pairs(method, states, result.episodes)


def evaluate_policy(
    method: Method,
    states: PyTree,
    make_envs: Callable[[int], HostEnvironment],
    seeds: list[int],
    num_episodes: int,
) -> dict[str, Any]:
    """The content of final.json: ``greedy`` and ``sampled`` play, calibration, and the hash of ``states``."""
    envs = make_envs(len(seeds) * num_episodes)
    try:
        greedy = play_episodes(method, states, envs, seeds, Mode.EXPLOIT)
        sampled = play_episodes(method, states, envs, seeds, Mode.SAMPLE, num_kept=min(NUM_KEPT_EPISODES, num_episodes))
    finally:
        envs.close()
    declared = envs.spec.return_bounds
    bounds = return_bounds(envs.spec.name, declared)
    return {
        "greedy": summarize_returns(greedy, bounds),
        "sampled": summarize_returns(sampled, bounds),
        **({} if declared is None else {"return_bounds": list(declared)}),
        "calibration": calibration_pairs(method, states, sampled.episodes),
        "state_hash": hash_tree(states),
    }


def calibration_pairs(method: Method, states: PyTree, kept: list[list[Transition]]) -> dict[str, Any] | None:
    """Pairs of predicted values and realised discounted returns; ``None`` without a critic.

    Returns are discounted sums of the environment's reward and the entropy bonus, if the critic includes one. Values
    whose return is not known are ``None`` in ``realised``. ``reward_range``: the smallest and the largest reward.
    """
    predicted, realised, seed, episode, discount = [], [], [], [], None
    low, high = np.inf, -np.inf
    for s, episodes in enumerate(kept):
        for e, steps in enumerate(episodes):
            critique = judge_episode(method, states, jnp.asarray(s), _pad_episode(steps))
            if critique.value is None or critique.discount is None:
                return None
            discount = float(critique.discount)
            predicted.append(np.asarray(critique.value)[: len(steps.reward)])
            reward = _critic_rewards(steps, critique, discount)
            low, high = min(low, reward.min()), max(high, reward.max())
            realised.append(realized_returns(reward, steps.terminated, steps.truncated, discount))
            seed.append(np.full(len(steps.reward), s))
            episode.append(np.full(len(steps.reward), s * NUM_KEPT_EPISODES + e))
    value, outcome, seed_index, episode_index = (np.concatenate(x) for x in (predicted, realised, seed, episode))
    subsample = slice(None, None, -(-len(value) // MAX_PAIRS))
    return {
        "predicted": value[subsample].tolist(),
        "realised": [None if np.isnan(x) else float(x) for x in outcome[subsample]],
        "seed": seed_index[subsample].tolist(),
        "episode": episode_index[subsample].tolist(),
        "discount": discount,
        "reward_range": [low, high],
    }


@eqx.filter_jit
def judge_episode(method: Method, states: PyTree, seed_index: Int[Array, ""], steps: Transition) -> Critique:
    """The critique of an episode by the state of one seed; compiled once per method and padded length."""
    return method.judge(jax.tree.map(lambda x: x[seed_index], states), steps)


def _critic_rewards(transitions: Transition, critique: Critique, discount: float) -> np.ndarray:
    """Rewards in the critic's terms: the entropy bonus of a step counts in the returns of earlier steps."""
    reward = np.asarray(transitions.reward, np.float64)
    if critique.entropy_bonus is not None:
        bonus = np.asarray(critique.entropy_bonus, np.float64)[: len(reward)]
        reward = reward + discount * np.append(bonus[1:], 0.0)
    return reward


def _pad_episode(transitions: Transition) -> Transition:
    """The episode padded with copies of its last step to a power of two, so that few programs are compiled.

    A critic's value of a step does not depend on later steps; only advantages do, and they are not used here.
    """
    length = len(transitions.reward)
    padded_length = 1 << (length - 1).bit_length()
    return jax.tree.map(lambda x: np.concatenate([x, np.repeat(x[-1:], padded_length - length, axis=0)]), transitions)
