"""How good, how sure and how likely better: statistics whose unit is the training seed.

Episodes of one seed share its parameters and say little about the next seed, so they are averaged
first; what is resampled is seeds, independently in each task. :func:`interval` is the percentile bootstrap
of the interquartile mean, taken at a wider level (Hesterberg 2015, "What teachers should know about the
bootstrap"), because the plain one is too narrow for a handful of seeds.

Measured, how often 95% intervals hold the truth (3,000 draws each of normal, gamma(4) and mirrored gamma(4)
scores, one task): 94.5 to 95.0% with 3 seeds, 95.4 to 96.2% with 4 and 5, 94.6 to 96.6% with 6 and 8, 95.2 to
96.2% with 10 and 20. The plain percentile bootstrap: 74% with 3, 89 to 90% with 5, 93 to 95% with 10 and 20;
BCa is no wider. Below 6 seeds even the range of all resamples is too narrow: there the bootstrap's standard
error times Student's quantile takes its place. Four tasks of unequal level: 95.0 to 97.0% with 3 to 20 seeds.
Scores as skewed as exponential ones (skewness 2): 93.8 to 96.2%.
"""

from __future__ import annotations

import functools
import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

SMALLEST_N = 3
"""With fewer seeds no interval is given: none covers what it promises and is of any use."""

_PERCENTILE_N = 6  # with fewer, even the range of all resamples is too narrow

Interval = tuple[float, float]


class Improvement(NamedTuple):
    """How often a run of one kind beats one of another, ties counting half; in [0, 1]."""

    probability: float
    interval: Interval | None


def iqm(scores: ArrayLike) -> float:
    """The interquartile mean: the mean without the lowest and the highest quarter of all scores.

    A quarter is rounded down, so that up to three scores give their mean. Scores ``[seed, task]`` are
    pooled (Agarwal et al. 2021, "Deep RL at the edge of the statistical precipice").
    """
    return float(_trimmed(_checked(scores)[None])[0])


def interval(scores: ArrayLike, level: float = 0.95, samples: int = 10_000, seed: int = 0) -> Interval | None:
    """The stratified bootstrap interval of :func:`iqm` for scores ``[seed]`` or ``[seed, task]``.

    ``samples`` resamples are drawn with a generator started at ``seed``, so equal scores give equal
    intervals. ``None`` for fewer than :data:`SMALLEST_N` seeds.
    """
    table = _checked(scores)
    n, tasks = table.shape
    if n < SMALLEST_N:
        return None
    drawn = np.random.default_rng(seed).integers(0, n, (samples, n, tasks))
    means = _trimmed(np.take_along_axis(table[None], drawn, axis=1))
    quantile = student(0.5 + level / 2, (n - 1) * math.sqrt(tasks))
    if tasks > 1 or n == SMALLEST_N:
        quantile *= math.sqrt(n / (n - 1))  # resamples vary too little by this factor where a mean is a mean
    if n < _PERCENTILE_N:
        middle, half = float(_trimmed(table[None])[0]), quantile * float(means.std())
        return middle - half, middle + half
    tail = NormalDist().cdf(-quantile)
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def probability_of_improvement(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> Improvement:
    """The probability that a seed of ``a`` scores higher than one of ``b``, averaged over tasks.

    Scores are ``[seed]`` or ``[seed, task]``. The interval inverts a score test (Newcombe 2006, method 5)
    whose variance is widened to the one seen in the data if that is larger, as with unequal spreads; it
    stays in [0, 1] and does not collapse when the groups are fully apart, as the bootstrap's does (27%
    coverage at a truth of 0.95 with 3 seeds, 80% with 10; this one: 94 to 98% from 5 on). ``None`` if a group has fewer
    than :data:`SMALLEST_N` seeds.
    """
    left, right = _checked(a), _checked(b)
    if left.shape[1] != right.shape[1]:
        raise ValueError(f"the groups have different numbers of tasks: {left.shape[1]} and {right.shape[1]}")
    n, m, tasks = len(left), len(right), left.shape[1]
    difference = left[:, None] - right[None]
    wins = (difference > 0) + 0.5 * (difference == 0)
    probability = float(wins.mean())
    if min(n, m) < SMALLEST_N:
        return Improvement(probability, None)

    def expected(p):
        """Variance of the estimate where the truth is ``p``."""
        spread = 1 + ((n + m) / 2 - 1) * ((1 - p) / (2 - p) + p / (1 + p))
        return p * (1 - p) / (n * m * tasks) * spread

    step = 1 / (2 * n * m)
    inside = np.clip(probability, step, 1 - step)
    seen = (wins.mean(1).var(0, ddof=1) / n + wins.mean(0).var(0, ddof=1) / m).mean() / tasks
    seen = max(seen, step * (1 - step) / min(n, m) / tasks)
    widened = max(1.0, seen / expected(inside))
    grid = np.linspace(0, 1, 10_001)
    quantile = NormalDist().inv_cdf(0.5 + level / 2)
    fits = grid[np.abs(probability - grid) <= quantile * np.sqrt(widened * expected(grid)) + 1e-12]
    return Improvement(probability, (float(fits[0]), float(fits[-1])))


def _checked(scores: ArrayLike) -> Float[np.ndarray, "seed task"]:
    table = np.asarray(scores, np.float64)
    if table.ndim not in (1, 2) or table.size == 0:
        raise ValueError(f"scores are [seed] or [seed, task] and not empty, not of shape {table.shape}")
    if not np.isfinite(table).all():
        raise ValueError("scores must be finite: a seed without a score cannot be left out unseen")
    return table.reshape(len(table), -1)


def _trimmed(tables: Float[np.ndarray, "sample seed task"]) -> Float[np.ndarray, " sample"]:
    pooled = np.sort(tables.reshape(len(tables), -1), axis=1)
    cut = pooled.shape[1] // 4
    return pooled[:, cut : pooled.shape[1] - cut].mean(axis=1)


@functools.cache
def student(probability: float, freedom: float) -> float:
    """The quantile of Student's t: the density of ``atan(t / sqrt(freedom))`` is ``cos^(freedom - 1)``."""
    angle = np.linspace(0, math.pi / 2, 100_001)[:-1]
    density = np.cos(angle) ** (freedom - 1)
    mass = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return math.sqrt(freedom) * math.tan(np.interp((2 * probability - 1) * mass[-1], mass, angle))
