"""Inequalities between arms, and what the seeds say of them: shown, not shown, or contradicted."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from thespis.evaluation.statistics import Interval, interval, iqm, probability_of_improvement
from thespis.evidence.measures import Measure, parameters

SHOWN, NOT_SHOWN, CONTRADICTED = "shown", "not shown", "contradicted"


@dataclasses.dataclass(frozen=True)
class Finding:
    """What the seeds say of one claim."""

    sentence: str
    verdict: str
    estimate: float
    """A probability (:class:`Better`), a difference (:class:`Same`) or a score (:class:`AtLeast`)."""
    interval: Interval | None


@runtime_checkable
class Results(Protocol):
    """The finished runs of a trial."""

    def scores(self, arm: str, measure: Measure) -> Float[np.ndarray, "seed env *rest"]:
        """What ``measure`` says of every seed of an arm on every environment."""
        ...


@runtime_checkable
class Claim(Protocol):
    """A statement on arms that seeds can show or contradict."""

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms it speaks of."""
        ...

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The measures it speaks of, to be tabled and drawn."""
        ...

    @property
    def sentence(self) -> str:
        """In words, with everything that decides it."""
        ...

    def judge(self, results: Results, level: float) -> Finding:
        """What the seeds so far say, with intervals of ``level``."""
        ...


@dataclasses.dataclass(frozen=True)
class _OnTwo:
    """A statement on two arms."""

    a: str
    b: str

    @property
    def arms(self) -> tuple[str, ...]:
        """Both."""
        return self.a, self.b


@dataclasses.dataclass(frozen=True)
class _ByMeasure(_OnTwo):
    """A statement on a number per seed."""

    measure: Measure

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The one."""
        return (self.measure,)


@dataclasses.dataclass(frozen=True)
class _ByParameters(_OnTwo):
    """A statement on all parameters after training. No chance is involved: it is shown or contradicted."""

    limit: float

    @property
    def measures(self) -> tuple[Measure, ...]:
        """None that could be tabled."""
        return ()


@dataclasses.dataclass(frozen=True)
class Better(_ByMeasure):
    """A seed of ``a`` does better than one of ``b`` with a probability above one half."""

    @property
    def sentence(self) -> str:
        """In words."""
        way = "larger" if self.measure.larger_is_better else "smaller"
        return f"{self.a} has a {way} {self.measure.name} than {self.b}"

    def judge(self, results: Results, level: float) -> Finding:
        """Decided where the interval of the probability leaves out one half."""
        left, right = (results.scores(arm, self.measure) for arm in self.arms)
        return _compared(self.sentence, left, right, self.measure.larger_is_better, level)


@dataclasses.dataclass(frozen=True)
class Steadier(_ByMeasure):
    """Seeds of ``a`` lie nearer to their median than seeds of ``b`` to theirs (after Brown and Forsythe 1974)."""

    @property
    def sentence(self) -> str:
        """In words."""
        return f"{self.measure.name} differs less between seeds of {self.a} than between seeds of {self.b}"

    def judge(self, results: Results, level: float) -> Finding:
        """Decided where the interval of the probability of a smaller deviation leaves out one half."""
        left, right = (_deviations(results.scores(arm, self.measure)) for arm in self.arms)
        return _compared(self.sentence, left, right, False, level)


@dataclasses.dataclass(frozen=True)
class NoWorse(_ByMeasure):
    """A seed of ``a``, moved by ``margin`` for the better, does better than one of ``b`` more often than not."""

    margin: float

    @property
    def sentence(self) -> str:
        """In words."""
        way = "below" if self.measure.larger_is_better else "above"
        return f"the {self.measure.name} of {self.a} is no more than {self.margin:g} {way} that of {self.b}"

    def judge(self, results: Results, level: float) -> Finding:
        """Decided where the interval of the probability leaves out one half."""
        left, right = (results.scores(arm, self.measure) for arm in self.arms)
        larger = self.measure.larger_is_better
        return _compared(self.sentence, left + (self.margin if larger else -self.margin), right, larger, level)


@dataclasses.dataclass(frozen=True)
class AtLeast:
    """The seeds of ``arm`` reach ``bound`` in every environment: so does the interval of their interquartile mean."""

    arm: str
    measure: Measure
    bound: float

    @property
    def arms(self) -> tuple[str, ...]:
        """The one."""
        return (self.arm,)

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The one."""
        return (self.measure,)

    @property
    def sentence(self) -> str:
        """In words."""
        return f"{self.arm} has a {self.measure.name} of at least {self.bound:g} in every environment"

    def judge(self, results: Results, level: float) -> Finding:
        """By the lowest ends of the environments' intervals, at a level that holds for all of them together."""
        scores = results.scores(self.arm, self.measure)
        level = 1 - (1 - level) / scores.shape[1]
        estimate = min(iqm(column) for column in scores.T)
        spans = [span for column in scores.T if (span := interval(column, level)) is not None]
        if not spans:  # too few seeds
            return Finding(self.sentence, NOT_SHOWN, estimate, None)
        low, high = min(span[0] for span in spans), min(span[1] for span in spans)
        verdict = SHOWN if low >= self.bound else CONTRADICTED if high < self.bound else NOT_SHOWN
        return Finding(self.sentence, verdict, estimate, (low, high))


@dataclasses.dataclass(frozen=True)
class Same(_ByParameters):
    """All parameters of ``a`` and ``b`` agree within ``limit``, seed by seed."""

    @property
    def sentence(self) -> str:
        """In words."""
        return f"the parameters of {self.a} and {self.b} agree within {self.limit:g} in every seed"

    def judge(self, results: Results, level: float) -> Finding:
        """By the seed that is furthest apart."""
        apart = _apart(results, self.arms).max()
        return Finding(self.sentence, SHOWN if apart <= self.limit else CONTRADICTED, apart, None)


@dataclasses.dataclass(frozen=True)
class Different(_ByParameters):
    """Some parameter of ``a`` and ``b`` differs by more than ``limit``, in every seed."""

    @property
    def sentence(self) -> str:
        """In words."""
        return f"the parameters of {self.a} and {self.b} differ by more than {self.limit:g} in every seed"

    def judge(self, results: Results, level: float) -> Finding:
        """By the seed that is nearest."""
        apart = _apart(results, self.arms).min()
        return Finding(self.sentence, SHOWN if apart > self.limit else CONTRADICTED, apart, None)


def overall(findings: Sequence[Finding]) -> str:
    """Shown if everything is; contradicted if anything is."""
    verdicts = {finding.verdict for finding in findings}
    if CONTRADICTED in verdicts:
        return CONTRADICTED
    return SHOWN if verdicts == {SHOWN} else NOT_SHOWN


def _compared(sentence: str, left: np.ndarray, right: np.ndarray, larger: bool, level: float) -> Finding:
    sign = 1 if larger else -1
    probability, interval = probability_of_improvement(sign * left, sign * right, level)
    verdict = NOT_SHOWN
    if interval is not None and interval[0] > 0.5:
        verdict = SHOWN
    elif interval is not None and interval[1] < 0.5:
        verdict = CONTRADICTED
    return Finding(sentence, verdict, probability, interval)


def _deviations(scores: Float[np.ndarray, "seed env"]) -> Float[np.ndarray, "seed env"]:
    return np.abs(scores - np.median(scores, axis=0))


def _apart(results: Results, arms: tuple[str, ...]) -> Float[np.ndarray, " seed"]:
    """The largest difference of any parameter, of each seed."""
    left, right = (results.scores(arm, parameters()) for arm in arms)
    if left.shape != right.shape:
        raise ValueError(f"{arms[0]} and {arms[1]} have different numbers of parameters")
    return np.abs(left - right).max(axis=(1, 2))
