r"""Reliability of filtered rewards: :math:`R^2` of rewards and utilities of the responses that a filter keeps, exactly.

Of ``n`` responses of a group the one of rank ``k`` is at least as good as a word if at least ``k`` of them are, whose
number is binomial. So the expected number of times that a filter keeps a word is known for every policy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from thespis.envs.text.bandit import NO_WORD_PENALTY
from thespis.evidence.benches.rated_words import response_log_probs, response_utilities
from thespis.evidence.measures import Measure, untrained_states
from thespis.learners.language.response_filters import RankFilter
from thespis.papers.pf_ppo.reward_model import PermutedReward


def kept_counts(
    probs: Float[np.ndarray, " response"],
    rewards: Float[np.ndarray, " response"],
    rank_filter: RankFilter,
    group_size: int,
) -> Float[np.ndarray, " response"]:
    """Expected number of times that a filter keeps each response, of a group of samples with these probabilities.

    No two responses have the same reward.
    """
    at_least = np.array([probs[rewards >= reward].sum() for reward in rewards])
    better = np.array([probs[rewards > reward].sum() for reward in rewards])
    by_rank = np.array(
        [_tail(at_least, group_size, k) - _tail(better, group_size, k) for k in range(1, group_size + 1)]
    )
    end = group_size - rank_filter.num_worst
    middle = by_rank[rank_filter.num_best : end]
    drawn = middle.sum(axis=0) * rank_filter.num_random / max(len(middle), 1)
    return by_rank[: rank_filter.num_best].sum(axis=0) + by_rank[end:].sum(axis=0) + drawn


def _tail(probs: Float[np.ndarray, " response"], num_trials: int, num_successes: int) -> np.ndarray:
    """Probability of at least ``num_successes`` in binomial trials."""
    counts = range(num_successes, num_trials + 1)
    terms = [math.comb(num_trials, k) * probs**k * (1 - probs) ** (num_trials - k) for k in counts]
    return np.sum(terms, axis=0)


def determination(weights: ArrayLike, rewards: ArrayLike, scores: ArrayLike) -> float:
    """Coefficient of determination of a weighted linear regression of scores on rewards."""
    weights, rewards, scores = (np.ravel(np.asarray(x, np.float64)) for x in (weights, rewards, scores))
    cov = np.cov(rewards, scores, aweights=weights)
    return float(cov[0, 1] ** 2 / (cov[0, 0] * cov[1, 1]))


def filtered_determination(name: str, reward_model: PermutedReward, before_training: bool) -> Measure:
    """Coefficient of determination of rewards and utilities of the responses that the run's filter keeps.

    Of groups that the policy samples, or the model before training. Without a filter all responses count.
    """
    utilities = np.asarray(response_utilities(), np.float64)
    words = np.asarray(reward_model.rewards, np.float64)
    rewards = np.c_[words, reward_model.task.utilities.min(axis=1) - NO_WORD_PENALTY]

    def values(run: Any) -> Float[np.ndarray, " seed"]:
        states = untrained_states(run) if before_training else run.states
        size = run.method.feed.group_size
        rank_filter = run.method.rollout_transform or RankFilter(0, 0, size)
        probs = np.exp(np.asarray(response_log_probs(run, states), np.float64))
        probs /= probs.sum(axis=-1, keepdims=True)
        counts = [
            [kept_counts(*prompt, rank_filter, size) for prompt in zip(tables, rewards, strict=True)]
            for tables in probs
        ]
        return np.array([determination(table, rewards, utilities) for table in counts])

    return Measure(name, values, bounds=(0.0, 1.0))
