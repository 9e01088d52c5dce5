r"""Paired comparisons of two arms: exact sign-flip tests, intervals, effect sizes, and verdicts over planned looks.

Equal seeds give two arms equal environments, starts and data, so their scores are compared pair by pair. Without an
effect, the sign of each difference :math:`d_i` is as good as a toss of a coin. The test counts how many of all
:math:`2^n` sign patterns favour the first arm as much as the observed one (Fisher 1935; Good 2005, "Permutation,
parametric, and bootstrap tests of hypotheses"). Its inversion gives the interval of the mean difference: the ends are
order statistics of the means of all subsets of the differences (Hartigan 1969, "Using subsample values as typical
values"). For more than 16 pairs, 65,536 random sign patterns stand for all; the level of the test is exact then too.

A trial may look at its data several times. Each look has a part of the error rate, and the parts add up to it, so that
all looks together decide wrongly in at most that share of trials, whatever the scores' distribution.

Effect sizes are mean differences in units of the standard deviation of seeds, the root mean square of both arms'
(Cohen's d). Their intervals take that deviation as known.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from thespis.evaluation.statistics import Interval

SHOWN, CONTRADICTED, LEVEL, UNDECIDED, NOT_APPLICABLE = "shown", "contradicted", "level", "undecided", "not applicable"
"""Verdicts: better, worse, practically equal, none of these at the largest number of pairs, cannot be tried here."""

ERROR_RATE = 0.05
"""Share of trials of equal arms that are decided one way or the other, at most, over all looks."""
LEVEL_MARGIN = 0.3
"""Effect size within which two arms count as level, unless a trial declares a margin of its own."""

_MAX_EXHAUSTIVE_PAIRS = 16
_NUM_RANDOM_PATTERNS = 2**16


@dataclasses.dataclass(frozen=True)
class Look:
    """One look at a trial's data: after how many pairs, and the error rate that it may spend."""

    num_pairs: int
    error_rate: float


def plan_looks(num_pairs: Sequence[int]) -> tuple[Look, ...]:
    """Looks after these numbers of pairs, the last of which gets half of the error rate, the others equal parts.

    Raises ``ValueError`` if the numbers do not increase, or if a look could decide nothing with so few pairs.
    """
    counts = tuple(num_pairs)
    if not counts or list(counts) != sorted(set(counts)):
        raise ValueError(f"looks come after increasing numbers of pairs, not after {counts}")
    rates = [ERROR_RATE / (2 * (len(counts) - 1)) for _ in counts[1:]] + [ERROR_RATE / 2 if counts[1:] else ERROR_RATE]
    for count, rate in zip(counts, rates, strict=True):
        if 2 ** (1 - count) > rate:
            raise ValueError(f"{count} pairs can decide nothing at a level of {rate:g}: the least is {min_pairs(rate)}")
    return tuple(Look(count, rate) for count, rate in zip(counts, rates, strict=True))


def min_pairs(error_rate: float) -> int:
    """The smallest number of pairs that can decide a two-sided test at this level: all of one sign."""
    return math.ceil(1 - math.log2(error_rate))


DEFAULT_LOOKS = plan_looks((20, 30, 40))
"""For runs of less than a minute."""
SHORT_LOOKS = plan_looks((10, 15, 20))
"""For longer runs."""


@dataclasses.dataclass(frozen=True)
class PairedEstimate:
    """What paired scores in one environment say of the difference of two arms, positive where the first is better."""

    num_pairs: int
    mean: float
    """Mean difference, in the units of the measure."""
    interval: Interval
    """Interval of the mean difference at the level of 1 minus the error rate."""
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
    return PairedEstimate(n, mean, interval, effect, effect_interval, sign_flip_p_value(differences))


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


def combined_differences(
    a: Float[np.ndarray, "pair env"], b: Float[np.ndarray, "pair env"]
) -> Float[np.ndarray, " pair"]:
    """The mean over environments of each pair's difference, in units of the spread of all scores there.

    The spread does not change where the two arms of a pair change places, which keeps the sign-flip test exact. An
    environment in which all scores are equal adds nothing.
    """
    spread = np.concatenate([a, b]).std(axis=0)
    return ((a - b) / np.where(spread > 0, spread, 1.0)).mean(axis=1)


@dataclasses.dataclass(frozen=True)
class PairedVerdict:
    """Verdict of a comparison at its last look, and what it rests on."""

    verdict: str
    num_pairs: int
    error_rate: float
    """Level of the look that decided, or of the last one."""
    p_value: float
    """Of all environments together."""
    estimates: tuple[PairedEstimate, ...]
    """One for each environment, at the level of 1 - :data:`ERROR_RATE`."""
    pairs_to_decide: int | None
    """For an undecided comparison: pairs that would show the observed effect with a probability of 0.8."""


def judge_pairs(
    a: Float[np.ndarray, "pair env"],
    b: Float[np.ndarray, "pair env"],
    looks: Sequence[Look] = DEFAULT_LOOKS,
    margins: Sequence[float] | None = None,
) -> PairedVerdict | None:
    """The verdict on scores of two arms, larger ones better; ``None`` with fewer pairs than the first look needs.

    The looks are taken in turn on the first pairs, up to the first that decides; pairs beyond its number do not count.
    *Shown* and *contradicted*: the test of all environments together rejects, and its sign says which. *Level*: in
    every environment the interval of the difference, at the look's error rate, lies within the margin: ``margins``, one
    for each environment in the units of the measure, or :data:`LEVEL_MARGIN` standard deviations.
    """
    decided = None
    for look in looks:
        if len(a) < look.num_pairs:
            break
        left, right = a[: look.num_pairs], b[: look.num_pairs]
        combined = combined_differences(left, right)
        p_value, verdict = sign_flip_p_value(combined), UNDECIDED
        if p_value <= look.error_rate:
            verdict = SHOWN if combined.mean() > 0 else CONTRADICTED
        elif _are_level(left, right, look.error_rate, margins):
            verdict = LEVEL
        decided = look, left, right, combined, p_value, verdict
        if verdict != UNDECIDED:
            break
    if decided is None:
        return None
    look, left, right, combined, p_value, verdict = decided
    estimates = tuple(paired_estimate(x, y) for x, y in zip(left.T, right.T, strict=True))
    to_decide = pairs_to_show(float(combined.mean()), float(combined.std(ddof=1))) if verdict == UNDECIDED else None
    return PairedVerdict(verdict, look.num_pairs, look.error_rate, p_value, estimates, to_decide)


def _are_level(
    a: Float[np.ndarray, "pair env"],
    b: Float[np.ndarray, "pair env"],
    error_rate: float,
    margins: Sequence[float] | None,
) -> bool:
    """Whether in every environment the interval of the difference lies within the margin."""
    deviations = np.sqrt((a.var(axis=0, ddof=1) + b.var(axis=0, ddof=1)) / 2)
    limits = LEVEL_MARGIN * deviations if margins is None else np.asarray(margins)
    differences = (a - b).T
    if any(abs(difference.mean()) > margin for difference, margin in zip(differences, limits, strict=True)):
        return False  # whatever the intervals
    intervals = (mean_interval(difference, error_rate) for difference in differences)
    return all(max(map(abs, interval)) <= margin for interval, margin in zip(intervals, limits, strict=True))


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
