"""Claim that one measure orders arms as another does."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float

from thespis.evaluation.paired import mean_interval, sign_flip_p_value
from thespis.evidence.claims import CONTRADICTED, NOT_SHOWN, SHOWN, Finding, TrialScores
from thespis.evidence.measures import Measure


def kendall_tau(a: Float[np.ndarray, "*seed arm"], b: Float[np.ndarray, "*seed arm"]) -> Float[np.ndarray, "*seed"]:
    """Rank correlation of Kendall over the last axis: pairs in the same order less those in the other, over all."""
    left, right = np.triu_indices(a.shape[-1], 1)
    return (np.sign(a[..., left] - a[..., right]) * np.sign(b[..., left] - b[..., right])).mean(axis=-1)


@dataclasses.dataclass(frozen=True)
class RankCorrelation:
    """Claim that ``predictor`` orders the arms as ``outcome`` does: Kendall's tau of a seed is above 0 on average."""

    arms: tuple[str, ...]
    predictor: Measure
    outcome: Measure

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The two measures that are correlated."""
        return self.predictor, self.outcome

    @property
    def sentence(self) -> str:
        """The claim in words."""
        names = f"{', '.join(self.arms[:-1])} and {self.arms[-1]}"
        return f"{self.predictor.name} orders {names} as {self.outcome.name} does (mean rank correlation of a seed)"

    def evaluate(self, results: TrialScores, confidence_level: float) -> Finding:
        """Decided by the sign-flip test of the rank correlations of seeds."""
        error_rate = 1 - confidence_level
        a, b = (np.stack([results.scores(arm, measure) for arm in self.arms], -1) for measure in self.measures)
        tau = kendall_tau(a, b).mean(axis=-1)
        significant = sign_flip_p_value(tau) <= error_rate
        verdict = (SHOWN if tau.mean() > 0 else CONTRADICTED) if significant else NOT_SHOWN
        return Finding(self.sentence, verdict, float(tau.mean()), mean_interval(tau, error_rate))
