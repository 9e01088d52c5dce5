"""Statistics over training seeds: interquartile mean, bootstrap intervals, probability of improvement.

The unit is the training seed: episodes of one seed share its parameters and say little about the next seed, so they
are averaged first, and seeds are resampled, independently in each task. :func:`bootstrap_interval` is the percentile
bootstrap of the interquartile mean at a wider level (Hesterberg 2015, "What teachers should know about the
bootstrap"), because the plain one is too narrow for few seeds.

Measured coverage of 95% intervals (3,000 draws each of normal, gamma(4) and mirrored gamma(4) scores, one task):
94.5 to 95.0% with 3 seeds, 95.4 to 96.2% with 4 and 5, 94.6 to 96.6% with 6 and 8, 95.2 to
96.2% with 10 and 20. The plain percentile bootstrap: 74% with 3, 89 to 90% with 5, 93 to 95% with 10 and 20;
BCa is no wider. Below 6 seeds even the range of all resamples is too narrow: there the bootstrap's standard
error times Student's quantile takes its place. Four tasks of unequal level: 95.0 to 97.0% with 3 to 20 seeds.
Scores as skewed as exponential ones (skewness 2): 93.8 to 96.2%.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

MIN_SEEDS = 3
"""With fewer seeds no interval is computed: it would either have wrong coverage or be uselessly wide."""

_MIN_PERCENTILE_SEEDS = 6  # with fewer, even the range of all resamples is too narrow

Interval = tuple[float, float]


class ImprovementProbability(NamedTuple):
    """Probability that a run of one group scores higher than one of another, ties counting half; in [0, 1]."""

    probability: float
    interval: Interval | None


def iqm(scores: ArrayLike) -> float:
    """Interquartile mean: the mean without the lowest and the highest quarter of all scores.

    A quarter is rounded down, so that up to three scores give their mean. Scores ``[seed, task]`` are
    pooled (Agarwal et al. 2021, "Deep RL at the edge of the statistical precipice").
    """
    return float(_trimmed_mean(_score_table(scores)[None])[0])


def bootstrap_interval(
    scores: ArrayLike,
    confidence_level: float = 0.95,
    num_resamples: int = 10_000,
    seed: int = 0,
    bounds: Interval | None = None,
) -> Interval | None:
    """Stratified bootstrap interval of :func:`iqm` for scores ``[seed]`` or ``[seed, task]``.

    ``num_resamples`` resamples are drawn by a generator with seed ``seed``, so equal scores give equal
    intervals. ``None`` for fewer than :data:`MIN_SEEDS` seeds. The interval is cut off at ``bounds``, between which all
    scores lie, where these are known: with few seeds it would leave them. Bounds that a score has left are wrong, and
    not used.
    """
    table = _score_table(scores)
    if bounds is not None and not (bounds[0] <= table.min() and table.max() <= bounds[1]):
        bounds = None
    n, tasks = table.shape
    if n < MIN_SEEDS:
        return None
    indices = np.random.default_rng(seed).integers(0, n, (num_resamples, n, tasks))
    means = _trimmed_mean(np.take_along_axis(table[None], indices, axis=1))
    quantile = student_t_quantile(0.5 + confidence_level / 2, (n - 1) * math.sqrt(tasks))
    if tasks > 1 or n == MIN_SEEDS:
        quantile *= math.sqrt(n / (n - 1))  # resamples of a plain mean vary too little by this factor
    if n < _MIN_PERCENTILE_SEEDS:
        middle, half = float(_trimmed_mean(table[None])[0]), quantile * float(means.std())
        return clip_interval((middle - half, middle + half), bounds)
    tail = NormalDist().cdf(-quantile)
    low, high = np.quantile(means, [tail, 1 - tail])
    return clip_interval((float(low), float(high)), bounds)


def clip_interval(interval: Interval, bounds: Interval | None) -> Interval:
    """An interval without what lies outside of ``bounds``; ``None``: there are none."""
    if bounds is None:
        return interval
    return max(interval[0], bounds[0]), min(interval[1], bounds[1])


def probability_of_improvement(a: ArrayLike, b: ArrayLike, confidence_level: float = 0.95) -> ImprovementProbability:
    """The probability that a seed of ``a`` scores higher than one of ``b``, averaged over tasks.

    Scores are ``[seed]`` or ``[seed, task]``. The interval inverts a score test (Newcombe 2006, method 5)
    whose variance is replaced by the observed one if that is larger, as with unequal spreads; it stays in
    [0, 1] and does not collapse when the groups do not overlap, as the bootstrap's does (27% coverage at a
    true probability of 0.95 with 3 seeds, 80% with 10; this one: 94 to 98% from 5 on). ``None`` if a group has
    fewer than :data:`MIN_SEEDS` seeds.
    """
    left, right = _score_table(a), _score_table(b)
    if left.shape[1] != right.shape[1]:
        raise ValueError(f"the groups have different numbers of tasks: {left.shape[1]} and {right.shape[1]}")
    n, m, tasks = len(left), len(right), left.shape[1]
    difference = left[:, None] - right[None]
    wins = (difference > 0) + 0.5 * (difference == 0)
    probability = float(wins.mean())
    if min(n, m) < MIN_SEEDS:
        return ImprovementProbability(probability, None)

    def expected_variance(p):
        """Variance of the estimate if the true probability is ``p``."""
        spread = 1 + ((n + m) / 2 - 1) * ((1 - p) / (2 - p) + p / (1 + p))
        return p * (1 - p) / (n * m * tasks) * spread

    step = 1 / (2 * n * m)
    inside = np.clip(probability, step, 1 - step)
    observed = (wins.mean(1).var(0, ddof=1) / n + wins.mean(0).var(0, ddof=1) / m).mean() / tasks
    observed = max(observed, step * (1 - step) / min(n, m) / tasks)
    inflation = max(1.0, observed / expected_variance(inside))
    grid = np.linspace(0, 1, 10_001)
    quantile = NormalDist().inv_cdf(0.5 + confidence_level / 2)
    accepted = grid[np.abs(probability - grid) <= quantile * np.sqrt(inflation * expected_variance(grid)) + 1e-12]
    return ImprovementProbability(probability, (float(accepted[0]), float(accepted[-1])))


def _score_table(scores: ArrayLike) -> Float[np.ndarray, "seed task"]:
    table = np.asarray(scores, np.float64)
    if table.ndim not in (1, 2) or table.size == 0:
        raise ValueError(f"scores are [seed] or [seed, task] and not empty, not of shape {table.shape}")
    if not np.isfinite(table).all():
        raise ValueError("scores must be finite: a seed without a score must not be left out silently")
    return table.reshape(len(table), -1)


def _trimmed_mean(tables: Float[np.ndarray, "sample seed task"]) -> Float[np.ndarray, " sample"]:
    pooled = np.sort(tables.reshape(len(tables), -1), axis=1)
    cut = pooled.shape[1] // 4
    return pooled[:, cut : pooled.shape[1] - cut].mean(axis=1)


def student_t_quantile(probability: float, df: float) -> float:
    """Quantile of Student's t distribution with ``df`` degrees of freedom."""
    from scipy.special import stdtrit  # imported here, as it takes longer than the rest of this module

    return float(stdtrit(df, probability))
