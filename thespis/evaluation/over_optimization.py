"""Detection of over-optimization: a learned reward still rises while the environment's own return falls.

What is optimized is a proxy, and where the two part the proxy is exploited (Gao et al., 2023, arXiv:2210.10760). A run
that learns from a frozen reward records both, ``feedback_reward`` and ``episode_return``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from thespis.evaluation.formatting import format_number

LEARNED, TRUE = "feedback_reward", "episode_return"
"""Columns of the metrics: the learned reward of a step, and the environment's return of an episode."""
NUM_PARTS = 10
"""Parts of a run whose means are compared; each needs two rows of the metrics for every seed."""

_MIN_STANDARD_ERRORS = 3.0
_MIN_SHARE = 0.1  # of the range of the return over the run, by which it must have fallen


@dataclasses.dataclass(frozen=True)
class OverOptimization:
    """The return at its peak and at the end, and the learned reward at both; means over seeds of a tenth of the run.

    ``peak_step``: steps at the end of the best tenth. ``is_over_optimized``: the return fell by more than chance and by
    more than a tenth of its range, and the learned reward rose meanwhile. ``sentence``: the same in words.
    """

    peak_step: int
    peak_return: float
    final_return: float
    peak_reward: float
    final_reward: float
    is_over_optimized: bool
    sentence: str


def find_over_optimization(metrics: Mapping[str, np.ndarray]) -> OverOptimization | None:
    """Compare the learned reward with the true return of a run; ``None`` without a learned reward or with few rows."""
    if LEARNED not in metrics or TRUE not in metrics:
        return None
    seeds = [_seed_parts(metrics, seed) for seed in np.unique(metrics["seed"])]
    parts = [part for part in seeds if part is not None]
    if not parts or len(parts) < len(seeds):
        return None
    ends = np.mean([end for end, _, _, _ in parts], axis=0)
    true, variance, learned = (np.mean([part[i] for part in parts], axis=0) for i in (1, 2, 3))
    variance /= len(parts)
    peak = int(np.argmax(true))
    drop = true[peak] - true[-1]
    is_fallen = drop > _MIN_STANDARD_ERRORS * np.sqrt(variance[peak] + variance[-1]) and drop > _MIN_SHARE * np.ptp(
        true
    )
    is_over_optimized = bool(is_fallen and learned[-1] > learned[peak])
    step = int(ends[peak])
    high, low = format_number(float(true[peak])), format_number(float(true[-1]))
    before, after = format_number(float(learned[peak])), format_number(float(learned[-1]))
    if is_over_optimized:
        sentence = (
            f"The learned reward is over-optimized: it rose from {before} to {after}, while the environment's return "
            f"fell from {high} (its peak, at step {step:,}) to {low}. Stop earlier, penalize KL to the reference more, "
            "or use an ensemble of reward models."
        )
    elif is_fallen:
        sentence = f"The return fell from {high} to {low}, and so did the learned reward, from {before} to {after}."
    else:
        sentence = f"The learned reward is not over-optimized: the return ended at {low}, at most at {high}."
    return OverOptimization(
        step, float(true[peak]), float(true[-1]), float(learned[peak]), float(learned[-1]), is_over_optimized, sentence
    )


def _seed_parts(
    metrics: Mapping[str, np.ndarray], seed: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
    """Of each tenth of a seed's rows: the last step, the mean return and its variance, and the mean learned reward."""
    rows = (metrics["seed"] == seed) & np.isfinite(metrics[LEARNED]) & np.isfinite(metrics[TRUE])
    if rows.sum() < 2 * NUM_PARTS:
        return None
    step, true, learned = (np.array_split(metrics[name][rows], NUM_PARTS) for name in ("step", TRUE, LEARNED))
    return (
        np.array([part[-1] for part in step]),
        np.array([part.mean() for part in true]),
        np.array([part.var(ddof=1) / len(part) for part in true]),
        np.array([part.mean() for part in learned]),
    )
