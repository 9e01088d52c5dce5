"""Claims of paired trials: arms compared on equal seeds, with verdicts over planned looks.

A claim is judged at one look after the other, until one decides. Claims of equality and of thresholds,
:mod:`thespis.evidence.claims`, can stand in paired trials too.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from thespis.evaluation.paired import PairedEstimate
from thespis.evaluation.statistics import Interval
from thespis.evidence.claims import NOT_SHOWN, Claim, TrialScores
from thespis.evidence.measures import Measure
from thespis.evidence.paired_verdict import NOT_APPLICABLE, UNDECIDED, Look, judge_look


@dataclasses.dataclass(frozen=True)
class EnvEstimate:
    """What one environment says of a comparison."""

    env: str
    differences: tuple[float, ...]
    """Of every pair, positive where the first arm is better."""
    paired: PairedEstimate


@dataclasses.dataclass(frozen=True)
class PairedFinding:
    """Finding on one claim of a paired trial: its verdict, and what it rests on."""

    sentence: str
    verdict: str
    num_pairs: int
    estimates: tuple[EnvEstimate, ...] = ()
    """One for each environment of a comparison."""
    p_value: float | None = None
    """Of a comparison, for all environments together."""
    pairs_to_decide: int | None = None
    """Of an undecided comparison: the pairs that would show what was seen."""
    value: float | None = None
    """Of a claim that is no comparison: its estimate."""
    interval: Interval | None = None


@runtime_checkable
class PairedScores(TrialScores, Protocol):
    """Protocol of the scores of a paired trial's finished runs, seed by seed in the same order for all arms."""

    @property
    def envs(self) -> tuple[str, ...]:
        """The environments, in the order of the scores' second axis."""
        ...


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Claim that ``a`` scores better than ``b`` on equal seeds, over all environments together."""

    a: str
    b: str
    measure: Measure
    envs: tuple[str, ...] = ()
    """The trial's environments that count; by default all."""
    margins: tuple[float, ...] | None = None
    """Differences that count as level, one for each environment, in the units of the measure."""

    @property
    def arms(self) -> tuple[str, ...]:
        """The two arms that the claim compares."""
        return self.a, self.b

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The one measure that the claim compares."""
        return (self.measure,)

    @property
    def sentence(self) -> str:
        """The claim in words."""
        direction = "larger" if self.measure.larger_is_better else "smaller"
        return f"{self.a} has a {direction} {self.measure.name} than {self.b}{self.place}"

    @property
    def place(self) -> str:
        """The environments in words, where they are not all of the trial's."""
        return f" in {' and '.join(self.envs)}" if self.envs else ""

    @property
    def offset(self) -> float:
        """What is added to the first arm's scores for the test; with one, arms cannot come out as level."""
        return 0.0

    def compared(
        self, a: Float[np.ndarray, "seed env"], b: Float[np.ndarray, "seed env"]
    ) -> tuple[Float[np.ndarray, "seed env"], Float[np.ndarray, "seed env"]]:
        """What is compared, larger ones better, from both arms' scores."""
        sign = 1 if self.measure.larger_is_better else -1
        return sign * a, sign * b

    def judge(self, results: PairedScores, look: Look) -> PairedFinding:
        """The finding of one look. Raises ``ValueError`` for too few pairs."""
        envs, n = self.envs or results.envs, look.num_pairs
        columns = [results.envs.index(env) for env in envs]
        left, right = self.compared(*(results.scores(arm, self.measure)[:n, columns] for arm in self.arms))
        judged = judge_look(left, right, look, self.margins, self.offset)
        differences = (tuple(column) for column in (left - right).T.tolist())
        estimates = tuple(map(EnvEstimate, envs, differences, judged.estimates))
        return PairedFinding(
            self.sentence,
            judged.verdict,
            n,
            estimates,
            p_value=judged.p_value,
            pairs_to_decide=judged.pairs_to_decide,
        )


@dataclasses.dataclass(frozen=True)
class LowerSpread(Comparison):
    """Claim that seeds of ``a`` deviate less from their median than those of ``b`` (after Brown and Forsythe 1974)."""

    @property
    def sentence(self) -> str:
        """The claim in words."""
        return f"{self.measure.name} differs less between seeds of {self.a} than between seeds of {self.b}{self.place}"

    def compared(
        self, a: Float[np.ndarray, "seed env"], b: Float[np.ndarray, "seed env"]
    ) -> tuple[Float[np.ndarray, "seed env"], Float[np.ndarray, "seed env"]]:
        """Minus the distances from the arm's median."""
        left, right = (-np.abs(scores - np.median(scores, axis=0)) for scores in (a, b))
        return left, right


@dataclasses.dataclass(frozen=True)
class NoWorse(Comparison):
    """Claim that ``a``, improved by a margin, scores better than ``b`` (non-inferiority)."""

    margin: float = dataclasses.field(kw_only=True)
    """In the units of the measure, above 0."""

    @property
    def sentence(self) -> str:
        """The claim in words."""
        side = "below" if self.measure.larger_is_better else "above"
        return f"the {self.measure.name} of {self.a} is at most {self.margin:g} {side} that of {self.b}{self.place}"

    @property
    def offset(self) -> float:
        """The margin of non-inferiority, added for the test."""
        return self.margin


@dataclasses.dataclass(frozen=True)
class NotApplicable:
    """Claim of the paper that cannot be tested here, and what a test of it would need."""

    what: str
    needs: str
    arms: tuple[str, ...] = ()
    measures: tuple[Measure, ...] = ()

    @property
    def sentence(self) -> str:
        """The claim in words, with what is missing."""
        return f"{self.what} (needs {self.needs})"


PairedClaim = Comparison | Claim | NotApplicable
"""What a paired trial may claim."""


def judge_claim(claim: PairedClaim, results: PairedScores, look: Look) -> PairedFinding:
    """The finding of one look on a claim: a comparison, or one of :mod:`thespis.evidence.claims`."""
    if isinstance(claim, NotApplicable):
        return PairedFinding(claim.sentence, NOT_APPLICABLE, 0)
    if isinstance(claim, Comparison):
        return claim.judge(results, look)
    finding = claim.evaluate(results, 1 - look.error_rate)
    verdict = UNDECIDED if finding.verdict == NOT_SHOWN else finding.verdict
    return PairedFinding(
        finding.sentence, verdict, look.num_pairs, value=float(finding.estimate), interval=finding.interval
    )
