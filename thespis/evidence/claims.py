"""Claims as inequalities between arms, with statistical verdicts over seeds: shown, not shown, or contradicted."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from thespis.evaluation.statistics import Interval, bootstrap_interval, iqm, probability_of_improvement
from thespis.evidence.measures import Measure, policy_parameters

SHOWN, NOT_SHOWN, CONTRADICTED = "shown", "not shown", "contradicted"


@dataclasses.dataclass(frozen=True)
class Finding:
    """Verdict on one claim, with its estimate and interval."""

    sentence: str
    verdict: str
    estimate: float
    """A probability (:class:`Superiority`, :class:`LowerVariance`, :class:`NonInferiority`), a difference of parameters
    (:class:`EqualParameters`, :class:`DifferentParameters`) or a score (:class:`MinimumScore`)."""
    interval: Interval | None


@runtime_checkable
class TrialScores(Protocol):
    """Protocol of the scores of a trial's finished runs."""

    def scores(self, arm: str, measure: Measure) -> Float[np.ndarray, "seed env *rest"]:
        """Scores of ``measure`` for every seed of an arm on every environment."""
        ...


@runtime_checkable
class Claim(Protocol):
    """Protocol of a statement on arms that seeds can show or contradict."""

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms that are compared."""
        ...

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The measures that are compared, for tables and figures."""
        ...

    @property
    def sentence(self) -> str:
        """The claim in words, with everything that decides it."""
        ...

    def evaluate(self, results: TrialScores, confidence_level: float) -> Finding:
        """Finding over the seeds so far, with intervals of ``confidence_level``."""
        ...


@dataclasses.dataclass(frozen=True)
class _PairClaim:
    """A statement on two arms."""

    a: str
    b: str

    @property
    def arms(self) -> tuple[str, ...]:
        """The two arms that the claim compares."""
        return self.a, self.b


@dataclasses.dataclass(frozen=True)
class _MeasureClaim(_PairClaim):
    """A statement on two arms about a number per seed."""

    measure: Measure

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The one measure that the claim compares."""
        return (self.measure,)


@dataclasses.dataclass(frozen=True)
class _ParameterClaim(_PairClaim):
    """A statement on all parameters of two arms after training; exact, so always shown or contradicted."""

    tolerance: float

    @property
    def measures(self) -> tuple[Measure, ...]:
        """Empty: parameters are not tabulated."""
        return ()


@dataclasses.dataclass(frozen=True)
class Superiority(_MeasureClaim):
    """Claim that a seed of ``a`` scores better than one of ``b`` with a probability above one half."""

    @property
    def sentence(self) -> str:
        """The claim in words."""
        direction = "larger" if self.measure.larger_is_better else "smaller"
        return f"{self.a} has a {direction} {self.measure.name} than {self.b}"

    def evaluate(self, results: TrialScores, confidence_level: float) -> Finding:
        """Decided if the interval of the probability excludes one half."""
        left, right = (results.scores(arm, self.measure) for arm in self.arms)
        return _compare_scores(self.sentence, left, right, self.measure.larger_is_better, confidence_level)


@dataclasses.dataclass(frozen=True)
class LowerVariance(_MeasureClaim):
    """Claim that seeds of ``a`` deviate less from their median than those of ``b`` (after Brown and Forsythe 1974)."""

    @property
    def sentence(self) -> str:
        """The claim in words."""
        return f"{self.measure.name} differs less between seeds of {self.a} than between seeds of {self.b}"

    def evaluate(self, results: TrialScores, confidence_level: float) -> Finding:
        """Decided if the interval of the probability of a smaller deviation excludes one half."""
        left, right = (_median_deviations(results.scores(arm, self.measure)) for arm in self.arms)
        return _compare_scores(self.sentence, left, right, False, confidence_level)


@dataclasses.dataclass(frozen=True)
class NonInferiority(_MeasureClaim):
    """Claim that a seed of ``a``, improved by ``margin``, scores better than one of ``b`` more often than not."""

    margin: float

    @property
    def sentence(self) -> str:
        """The claim in words."""
        direction = "below" if self.measure.larger_is_better else "above"
        return f"the {self.measure.name} of {self.a} is no more than {self.margin:g} {direction} that of {self.b}"

    def evaluate(self, results: TrialScores, confidence_level: float) -> Finding:
        """Decided if the interval of the probability excludes one half."""
        left, right = (results.scores(arm, self.measure) for arm in self.arms)
        larger = self.measure.larger_is_better
        return _compare_scores(
            self.sentence, left + (self.margin if larger else -self.margin), right, larger, confidence_level
        )


@dataclasses.dataclass(frozen=True)
class MinimumScore:
    """Claim that the interquartile mean of ``arm``, with its interval, reaches ``threshold`` in every environment."""

    arm: str
    measure: Measure
    threshold: float

    @property
    def arms(self) -> tuple[str, ...]:
        """The one arm that the claim is about."""
        return (self.arm,)

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The one measure that the claim compares."""
        return (self.measure,)

    @property
    def sentence(self) -> str:
        """The claim in words."""
        return f"{self.arm} has a {self.measure.name} of at least {self.threshold:g} in every environment"

    def evaluate(self, results: TrialScores, confidence_level: float) -> Finding:
        """Decided by the lowest bounds of the environments' intervals, at a level that holds for all of them."""
        scores = results.scores(self.arm, self.measure)
        confidence_level = 1 - (1 - confidence_level) / scores.shape[1]
        estimate = min(iqm(column) for column in scores.T)
        bounds = self.measure.bounds
        candidates = [bootstrap_interval(column, confidence_level, bounds=bounds) for column in scores.T]
        intervals = [interval for interval in candidates if interval is not None]
        if not intervals:  # too few seeds
            return Finding(self.sentence, NOT_SHOWN, estimate, None)
        low, high = min(interval[0] for interval in intervals), min(interval[1] for interval in intervals)
        verdict = SHOWN if low >= self.threshold else CONTRADICTED if high < self.threshold else NOT_SHOWN
        return Finding(self.sentence, verdict, estimate, (low, high))


@dataclasses.dataclass(frozen=True)
class EqualParameters(_ParameterClaim):
    """Claim that all parameters of ``a`` and ``b`` agree within ``tolerance`` in every seed."""

    @property
    def sentence(self) -> str:
        """The claim in words."""
        return f"the parameters of {self.a} and {self.b} agree within {self.tolerance:g} in every seed"

    def evaluate(self, results: TrialScores, confidence_level: float) -> Finding:
        """Decided by the seed with the largest difference."""
        difference = _max_parameter_difference(results, self.arms).max()
        return Finding(self.sentence, SHOWN if difference <= self.tolerance else CONTRADICTED, difference, None)


@dataclasses.dataclass(frozen=True)
class DifferentParameters(_ParameterClaim):
    """Claim that some parameter of ``a`` and ``b`` differs by more than ``tolerance`` in every seed."""

    @property
    def sentence(self) -> str:
        """The claim in words."""
        return f"the parameters of {self.a} and {self.b} differ by more than {self.tolerance:g} in every seed"

    def evaluate(self, results: TrialScores, confidence_level: float) -> Finding:
        """Decided by the seed with the smallest difference."""
        difference = _max_parameter_difference(results, self.arms).min()
        return Finding(self.sentence, SHOWN if difference > self.tolerance else CONTRADICTED, difference, None)


def overall_verdict(findings: Sequence[Finding]) -> str:
    """Shown if all findings are shown; contradicted if any is contradicted."""
    verdicts = {finding.verdict for finding in findings}
    if CONTRADICTED in verdicts:
        return CONTRADICTED
    return SHOWN if verdicts == {SHOWN} else NOT_SHOWN


def _compare_scores(
    sentence: str, a_scores: np.ndarray, b_scores: np.ndarray, larger_is_better: bool, confidence_level: float
) -> Finding:
    sign = 1 if larger_is_better else -1
    probability, interval = probability_of_improvement(sign * a_scores, sign * b_scores, confidence_level)
    verdict = NOT_SHOWN
    if interval is not None and interval[0] > 0.5:
        verdict = SHOWN
    elif interval is not None and interval[1] < 0.5:
        verdict = CONTRADICTED
    return Finding(sentence, verdict, probability, interval)


def _median_deviations(scores: Float[np.ndarray, "seed env"]) -> Float[np.ndarray, "seed env"]:
    return np.abs(scores - np.median(scores, axis=0))


def _max_parameter_difference(results: TrialScores, arms: tuple[str, ...]) -> Float[np.ndarray, " seed"]:
    """Largest difference over all parameters, for each seed."""
    left, right = (results.scores(arm, policy_parameters()) for arm in arms)
    if left.shape != right.shape:
        raise ValueError(f"{arms[0]} and {arms[1]} have different numbers of parameters")
    return np.abs(left - right).max(axis=(1, 2))
