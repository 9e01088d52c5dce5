r"""Paired comparisons of two groups of seeds: exact sign-flip tests, intervals and effect sizes.

Equal seeds give two methods equal environments, starts and data, so their scores are compared pair by pair. Without an
effect, the sign of each difference :math:`d_i` is as good as a toss of a coin. The test counts how many of all
:math:`2^n` sign patterns favour the first method as much as the observed one (Fisher 1935; Good 2005, "Permutation,
parametric, and bootstrap tests of hypotheses"). Its inversion gives the interval of the mean difference: the ends are
order statistics of the means of all subsets of the differences (Hartigan 1969, "Using subsample values as typical
values"). For more than 16 pairs, 65,536 random sign patterns stand for all; the level of the test is exact then too.

Effect sizes are mean differences in units of the standard deviation of seeds, the root mean square of both groups'
(Cohen's d). Their intervals take that deviation as known.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from statistics import NormalDist

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from thespis.evaluation.statistics import Interval

ERROR_RATE = 0.05
"""Two-sided error rate of tests and intervals, unless another is given."""

_MAX_EXHAUSTIVE_PAIRS = 16
_NUM_RANDOM_PATTERNS = 2**16


@dataclasses.dataclass(frozen=True)
class PairedEstimate:
    """What paired scores in one environment say of the difference of two arms, positive where the first is better."""

    num_pairs: int
    mean: float
    """Mean difference, in the units of the measure."""
    interval: Interval
    """Interval of the mean difference at the level of 1 minus the error rate."""
    deviation: float
    """Standard deviation of seeds: the root mean square of both groups'."""
    effect: float | None
    """Effect size; ``None`` if no seed differs from another within an arm."""
    effect_interval: Interval | None
    p_value: float
    """Two-sided p-value of the sign-flip test."""


def paired_estimate(a: ArrayLike, b: ArrayLike, error_rate: float = ERROR_RATE) -> PairedEstimate:
    """Compare paired scores ``[pair]`` of two arms, of which larger ones are better.

    Raises ``ValueError`` for other shapes, scores that are not finite, or fewer pairs than an interval needs.
    """
    left, right = (np.asarray(scores, np.float64) for scores in (a, b))
    if left.ndim != 1 or left.shape != right.shape or not (np.isfinite(left).all() and np.isfinite(right).all()):
        raise ValueError(f"paired scores are finite, [pair], and as many for both arms: {left.shape}, {right.shape}")
    n, differences = len(left), left - right
    if n < min_pairs(error_rate):
        raise ValueError(f"{n} pairs give no interval at an error rate of {error_rate:g}: {min_pairs(error_rate)} do")
    mean, interval = float(differences.mean()), mean_interval(differences, error_rate)
    deviation = math.sqrt((left.var(ddof=1) + right.var(ddof=1)) / 2)
    effect, effect_interval = None, None
    if deviation > 0:
        effect, effect_interval = mean / deviation, (interval[0] / deviation, interval[1] / deviation)
    return PairedEstimate(n, mean, interval, deviation, effect, effect_interval, sign_flip_p_value(differences))


def sign_flip_p_value(differences: Float[np.ndarray, " pair"]) -> float:
    """Two-sided p-value of the hypothesis that the differences are symmetric around 0."""
    means = _subset_means(differences)
    tolerance = 1e-12 * float(np.abs(differences).max(initial=0.0))
    not_above, not_below = (means <= tolerance).sum(), (means >= -tolerance).sum()
    return min(1.0, 2.0 * (1 + int(min(not_above, not_below))) / (1 + len(means)))


def mean_interval(differences: Float[np.ndarray, " pair"], error_rate: float) -> Interval:
    """Interval of the centre of the differences that leaves out what the two-sided test rejects at ``error_rate``."""
    means = _subset_means(differences)
    rank = max(1, math.floor(error_rate / 2 * (1 + len(means)) + 1e-9))
    low, high = np.partition(means, [rank - 1, len(means) - rank])[[rank - 1, len(means) - rank]]
    return float(low), float(high)


def min_pairs(error_rate: float) -> int:
    """The smallest number of pairs that can decide a two-sided test at this level: all of one sign."""
    return math.ceil(1 - math.log2(error_rate))


def pairs_to_show(mean: float, deviation: float, power: float = 0.8, error_rate: float = ERROR_RATE) -> int | None:
    """Pairs with which a two-sided test finds a mean difference with probability ``power``, for normal differences.

    ``deviation``: of the differences of pairs. ``None`` where more than 10,000 would be needed. The normal
    approximation is corrected for small samples (Guenther 1981).
    """
    if deviation == 0:
        return None if mean == 0 else min_pairs(error_rate)
    level, effect = NormalDist().inv_cdf(1 - error_rate / 2), abs(mean) / deviation
    if effect < (level + NormalDist().inv_cdf(power)) / 100:
        return None
    needed = ((level + NormalDist().inv_cdf(power)) / effect) ** 2 + level**2 / 2
    return max(min_pairs(error_rate), math.ceil(needed))


def _subset_means(differences: Float[np.ndarray, " pair"]) -> Float[np.ndarray, " subset"]:
    """Means of all subsets but the empty one, or, for many differences, of random ones."""
    n = len(differences)
    if n <= _MAX_EXHAUSTIVE_PAIRS:
        sums, sizes = np.zeros(1), np.zeros(1)
        for difference in differences:
            sums, sizes = np.concatenate([sums, sums + difference]), np.concatenate([sizes, sizes + 1])
        return sums[1:] / sizes[1:]
    members = _random_subsets(n)
    return members @ differences / members.sum(axis=1)


@functools.lru_cache(maxsize=2)
def _random_subsets(n: int) -> Float[np.ndarray, "subset pair"]:
    """Random subsets of ``n`` differences, each with probability one half, without empty ones."""
    members = np.random.default_rng(n).integers(0, 2, (_NUM_RANDOM_PATTERNS - 1, n), dtype=np.int8)
    members[members.sum(axis=1) == 0, 0] = 1
    return members.astype(np.float32)
