"""Comparison of two methods' results at equal numbers of environment steps, seed by seed."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from thespis.evaluation.statistics import Interval, student_t_quantile


@dataclasses.dataclass(frozen=True)
class EqualStepsComparison:
    """Returns of two methods after ``step`` environment steps, on the seeds that both were trained with."""

    step: int
    mean: float
    baseline_mean: float
    interval: Interval
    """Student's 95% interval of the mean difference."""
    num_better: int
    """Seeds in which the method is above the baseline."""
    num_pairs: int

    @property
    def difference(self) -> float:
        """Mean difference over seeds."""
        return self.mean - self.baseline_mean


def compare_at_equal_steps(result: dict[str, Any], baseline: dict[str, Any]) -> EqualStepsComparison:
    """Compare two cells' results at the largest number of steps at which both were evaluated.

    Raises :class:`ValueError` without such a number, or with fewer than two common seeds.
    """
    scores, baseline_scores = _scores_by_step(result), _scores_by_step(baseline)
    steps, seeds = set(scores) & set(baseline_scores), result["config"]["seeds"]
    common = [seed for seed in seeds if seed in baseline["config"]["seeds"]]
    if not steps or len(common) < 2:
        raise ValueError(f"{len(steps)} common steps and {len(common)} common seeds: nothing to compare")
    step = max(steps)
    pairs = np.array([(scores[step][seed], baseline_scores[step][seed]) for seed in common])
    differences = pairs[:, 0] - pairs[:, 1]
    mean, error = differences.mean(), differences.std(ddof=1) / np.sqrt(len(common))
    margin = student_t_quantile(0.975, len(common) - 1.0) * error
    return EqualStepsComparison(
        step=step,
        mean=float(pairs[:, 0].mean()),
        baseline_mean=float(pairs[:, 1].mean()),
        interval=(float(mean - margin), float(mean + margin)),
        num_better=int((differences > 0).sum()),
        num_pairs=len(common),
    )


def _scores_by_step(result: dict[str, Any]) -> dict[int, dict[int, float]]:
    """The learning curve: for every number of steps, each seed's mean return."""
    seeds, curve = result["config"]["seeds"], result["curve"]
    return {step: dict(zip(seeds, row, strict=True)) for step, row in zip(curve["steps"], curve["scores"], strict=True)}
