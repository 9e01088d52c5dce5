"""Power planner: how many pairs and minutes a verdict needs, from the controls of a bench."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from thespis.core.errors import UserError
from thespis.evaluation.paired import pairs_to_show
from thespis.evidence.bench import Bench
from thespis.evidence.paired_verdict import combined_differences
from thespis.evidence.paper import PairedTrial


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a comparison of two arms needs on a bench."""

    effect: float
    """The difference to be found, in standard deviations of seeds, in every environment."""
    pairs: int | None
    """Pairs that show it with the given power; ``None``: more than 10,000."""
    correlation: float
    """Of the scores of two arms with equal seeds, the mean over environments: what pairing gains."""
    minutes_per_run: float
    """Of one seed of one arm in one environment, on the machine that ran the controls."""
    minutes: float | None
    """Of all arms and environments of the trial, for these pairs."""


def plan_trial(
    bench: Bench, admission: dict[str, Any] | None, trial: PairedTrial | None, effect: float, power: float = 0.8
) -> Plan:
    """The plan for a trial, or for a comparison of two arms without one.

    The variance is that of the negative control: two arms without a difference, on equal seeds.

    Raises :class:`UserError` for a bench whose controls have not been run.
    """
    if admission is None:
        raise UserError(f"the controls of {bench.name} have not been run: thespis bench check {bench.name}")
    measures = {measure["name"]: measure for measure in admission["measures"]}
    arms = measures[bench.negative.measure.name]["arms"]
    envs = bench.negative.envs or bench.envs
    left, right = (
        np.array([arms[name][env]["scores"] for env in envs], np.float64).T for name in (bench.negative.arms)
    )
    deviation = np.sqrt((left.var(axis=0, ddof=1) + right.var(axis=0, ddof=1)) / 2)
    if not deviation.all():
        raise UserError(f"all seeds of {bench.negative.a} score the same: a plan needs a variance")
    spread = np.concatenate([left, right]).std(axis=0)
    differences = combined_differences(left, right)
    pairs = pairs_to_show(effect * float(np.mean(deviation / spread)), float(differences.std(ddof=1)), power)
    correlation = float(np.mean([np.corrcoef(x, y)[0, 1] for x, y in zip(left.T, right.T, strict=True)]))
    num_runs = len(bench.arms) * len(bench.envs) * len(admission["seeds"])
    per_run = admission["minutes"] / num_runs
    runs_per_pair = len(trial.arms) * len(trial.envs) if trial else 2 * len(bench.envs)
    minutes = None if pairs is None else pairs * runs_per_pair * per_run
    return Plan(effect, pairs, correlation, per_run, minutes)
