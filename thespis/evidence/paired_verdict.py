"""Verdicts on paired comparisons of two arms over several planned looks: shown, contradicted, level or undecided.

Each look has a part of the error rate, and the parts add up to it, so that all looks together decide wrongly in at most
that share of trials, whatever the scores' distribution (:mod:`thespis.evaluation.paired`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from thespis.evaluation.paired import (
    ERROR_RATE,
    PairedEstimate,
    mean_interval,
    min_pairs,
    paired_estimate,
    pairs_to_show,
    sign_flip_p_value,
)
from thespis.evidence.claims import CONTRADICTED, SHOWN

LEVEL, UNDECIDED, NOT_APPLICABLE = "level", "undecided", "not applicable"
"""Verdicts beside shown and contradicted: practically equal; none of these at the largest number of pairs; and a claim
that cannot be tested here."""

LEVEL_MARGIN = 0.3
"""Effect size within which two arms count as level, unless a trial declares a margin of its own."""


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


DEFAULT_LOOKS = plan_looks((20, 30, 40))
"""For runs of less than a minute."""
SHORT_LOOKS = plan_looks((10, 15, 20))
"""For longer runs."""


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
    ``margins``: as in :func:`judge_look`.
    """
    verdict = None
    for look in looks:
        if len(a) < look.num_pairs:
            break
        verdict = judge_look(a, b, look, margins)
        if verdict.verdict != UNDECIDED:
            break
    return verdict


def judge_look(
    a: Float[np.ndarray, "pair env"],
    b: Float[np.ndarray, "pair env"],
    look: Look,
    margins: Sequence[float] | None = None,
    offset: float = 0.0,
) -> PairedVerdict:
    """The verdict of one look on its first pairs.

    *Shown* and *contradicted*: the test of all environments together rejects, and its sign says which. *Level*: in
    every environment the interval of the difference, at the look's error rate, lies within the margin: ``margins``, one
    for each environment in the units of the measure, or :data:`LEVEL_MARGIN` standard deviations. ``offset`` is added
    to the first arm's scores for the test (non-inferiority), but not for the estimates; with one, arms are never level.

    Raises ``ValueError`` for too few pairs.
    """
    if len(a) < look.num_pairs:
        raise ValueError(f"{len(a)} pairs are too few for a look at {look.num_pairs}")
    left, right = a[: look.num_pairs], b[: look.num_pairs]
    combined = combined_differences(left + offset, right)
    p_value, verdict = sign_flip_p_value(combined), UNDECIDED
    if p_value <= look.error_rate:
        verdict = SHOWN if combined.mean() > 0 else CONTRADICTED
    elif not offset and _are_level(left, right, look.error_rate, margins):
        verdict = LEVEL
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


def combined_differences(
    a: Float[np.ndarray, "pair env"], b: Float[np.ndarray, "pair env"]
) -> Float[np.ndarray, " pair"]:
    """The mean over environments of each pair's difference, in units of the spread of all scores there.

    The spread does not change where the two arms of a pair change places, which keeps the sign-flip test exact. An
    environment in which all scores are equal adds nothing.
    """
    spread = np.concatenate([a, b]).std(axis=0)
    return ((a - b) / np.where(spread > 0, spread, 1.0)).mean(axis=1)
