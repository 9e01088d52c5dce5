"""Execution of trials: batches of seeds of every arm, with all claims evaluated after each, until all are decided.

Each job is an ordinary run in its own directory, named after its arm's declaration, so that finished runs are not
repeated, interrupted ones are resumed, and runs with another declaration are not used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from thespis import api
from thespis.evaluation.run import Run
from thespis.evidence.claims import NOT_SHOWN, Finding
from thespis.evidence.measures import Measure
from thespis.evidence.paper import Arm, Trial, digest
from thespis.runs.config import to_config
from thespis.runs.events import Callback


class TrialInterrupted(Exception):
    """Raised when a run was interrupted; it is saved."""


@dataclasses.dataclass(frozen=True)
class TrialJob:
    """One run of a trial: ``number`` of ``total`` in this batch."""

    arm: Arm
    env: str
    seeds: tuple[int, ...]
    number: int
    total: int


@dataclasses.dataclass
class TrialRuns:
    """The finished runs of a trial, by arm and environment, in the order of their seeds."""

    trial: Trial
    runs: dict[tuple[str, str], list[Run]] = dataclasses.field(default_factory=dict)

    def add(self, job: TrialJob, run: Run) -> None:
        """Add a finished run."""
        self.runs.setdefault((job.arm.name, job.env), []).append(run)

    def seeds(self) -> list[int]:
        """The seeds of every arm so far."""
        runs = self.runs[self.trial.arms[0].name, self.trial.envs[0]]
        return [seed for run in runs for seed in run.config["seeds"]]

    def scores(self, arm: str, measure: Measure) -> Float[np.ndarray, "seed env *rest"]:
        """Scores of ``measure`` for every seed of an arm on every environment."""
        envs = [np.concatenate([measure.compute(run) for run in self.runs[arm, env]]) for env in self.trial.envs]
        return np.stack(envs, axis=1)

    def findings(self) -> list[Finding]:
        """Findings on all claims over the seeds so far."""
        return [claim.evaluate(self, self.trial.confidence_level) for claim in self.trial.claims]


@dataclasses.dataclass(frozen=True)
class TrialOutcome:
    """Result of a trial."""

    runs: TrialRuns
    findings: list[Finding]
    num_looks: int
    seconds: float
    """Seconds of training and evaluation, including runs that were already finished."""


def run_trial(trial: Trial, directory: Path, make_callbacks: Callable[[TrialJob], list[Callback]]) -> TrialOutcome:
    """Train until every claim is decided or all looks are spent; ``make_callbacks`` gives the callbacks of each run.

    Raises :class:`TrialInterrupted` if a run was stopped; the same call resumes it.
    """
    trial_runs, findings, look = TrialRuns(trial), [], 0
    while look < trial.max_looks and (not findings or any(finding.verdict == NOT_SHOWN for finding in findings)):
        for job in _trial_jobs(trial, look):
            trial_runs.add(job, _find_or_train(trial, job, directory, make_callbacks(job)))
        findings, look = trial_runs.findings(), look + 1
    seconds = sum(run.directory.read_json("timing.json")["total"] for runs in trial_runs.runs.values() for run in runs)
    return TrialOutcome(trial_runs, findings, look, seconds)


def _trial_jobs(trial: Trial, look: int) -> Iterator[TrialJob]:
    seeds = tuple(range(look * trial.seeds_per_look, (look + 1) * trial.seeds_per_look))
    groups = [(seed,) for seed in seeds] if trial.sequential_seeds else [seeds]
    jobs = [(group, arm, env) for group in groups for arm in trial.arms for env in trial.envs]
    for number, (group, arm, env) in enumerate(jobs, 1):
        yield TrialJob(arm, env, group, number, len(jobs))


def _find_or_train(trial: Trial, job: TrialJob, directory: Path, callbacks: list[Callback]) -> Run:
    """The run of a job: loaded, resumed or trained."""
    path = directory / _run_name(trial, job)
    if (path / "run.json").exists():
        run = api.load(path)
        if run.final_scores is None:
            run = api.resume(path, callbacks=callbacks)
    else:
        options: dict[str, Any] = {"evaluate_every": 0} | dict(job.arm.options)
        run = api.train(
            job.arm.method,
            job.arm.env_for(job.env),
            steps=job.arm.steps or trial.steps,
            seeds=list(job.seeds),
            episodes=trial.num_episodes,
            preset=None,
            out=path,
            callbacks=callbacks,
            **options,
        )
    if run.final_scores is None:  # only an interrupted run has no final evaluation
        raise TrialInterrupted(str(path))
    return run


def _run_name(trial: Trial, job: TrialJob) -> str:
    """Name of the run's directory, which changes with everything that changes results."""
    arm, steps = job.arm, job.arm.steps or trial.steps
    settings = [to_config(arm.method), to_config(dict(arm.options)), steps, trial.num_episodes]
    env = job.arm.env_for(job.env).replace(":", "-").replace("/", "-")
    return f"{job.arm.name}-{env}-{digest(settings)}-seeds-{job.seeds[0]}-{job.seeds[-1]}".replace(" ", "-")
