"""Power planner: how many pairs and minutes a verdict needs, from the controls of a bench."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from thespis.core.errors import UserError
from thespis.evaluation.paired import pairs_to_show
from thespis.evidence.bench import Bench
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

    The variance is that of the positive control: two arms that differ, on equal seeds. Arms that hardly differ, such as
    those of the negative control, agree seed by seed more than those of a trial.

    Raises :class:`UserError` for a bench whose controls have not been run.
    """
    if admission is None:
        raise UserError(f"the controls of {bench.name} have not been run: thespis bench check {bench.name}")
    measures = {measure["name"]: measure for measure in admission["measures"]}
    control = bench.positive
    arms = measures[control.measure.name]["arms"]
    envs = control.envs or bench.envs
    left, right = (np.array([arms[name][env]["scores"] for env in envs], np.float64).T for name in control.arms)
    deviation = np.sqrt((left.var(axis=0, ddof=1) + right.var(axis=0, ddof=1)) / 2)
    if not deviation.all():
        raise UserError(f"all seeds of {control.a} and of {control.b} score the same: a plan needs a variance")
    differences = ((left - right) / deviation).mean(axis=1)
    pairs = pairs_to_show(effect, float(differences.std(ddof=1)), power)
    correlation = float(np.mean([_correlation(x, y) for x, y in zip(left.T, right.T, strict=True)]))
    num_runs = len(bench.arms) * len(bench.envs) * len(admission["seeds"])
    per_run = admission["minutes"] / num_runs
    runs_per_pair = len(trial.arms) * len(trial.envs) if trial else 2 * len(bench.envs)
    minutes = None if pairs is None else pairs * runs_per_pair * per_run
    return Plan(effect, pairs, correlation, per_run, minutes)


def _correlation(x: Float[np.ndarray, " seed"], y: Float[np.ndarray, " seed"]) -> float:
    """Of two arms' scores with equal seeds; 0 where all seeds of an arm score the same."""
    return float(np.corrcoef(x, y)[0, 1]) if x.std() and y.std() else 0.0
