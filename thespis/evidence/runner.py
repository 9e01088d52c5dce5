"""Execution of trials: batches of seeds of every arm, with all claims evaluated after each, until all are decided.

Each job is an ordinary run in its own directory, named after its method, environment, settings and seeds: finished runs
are not repeated, interrupted ones are resumed, runs with other settings are not used, and equal arms of several papers
train once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from thespis import api
from thespis.envs import registry
from thespis.evaluation.run import Run
from thespis.evidence.claims import NOT_SHOWN, Finding
from thespis.evidence.comparisons import PairedFinding, judge_claim
from thespis.evidence.measures import Measure
from thespis.evidence.paired_verdict import UNDECIDED
from thespis.evidence.paper import CONTEXT, Arm, Arms, PairedTrial, Trial, digest
from thespis.runs.config import to_config
from thespis.runs.events import Callback
from thespis.training.assembly import METHOD_STATE_PATH


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

    trial: Trial | PairedTrial
    runs: dict[tuple[str, str], list[Run]] = dataclasses.field(default_factory=dict)
    computed: dict[tuple[Path, str], np.ndarray] = dataclasses.field(default_factory=dict)
    """Scores of runs, by path and measure."""

    @property
    def envs(self) -> tuple[str, ...]:
        """The environments, in the order of the scores' second axis."""
        return self.trial.envs

    def add(self, job: TrialJob, run: Run) -> None:
        """Add a finished run."""
        self.runs.setdefault((job.arm.name, job.env), []).append(run)

    def seeds(self) -> list[int]:
        """The seeds so far, of the arms that have most."""
        return max(([seed for run in runs for seed in run.config["seeds"]] for runs in self.runs.values()), key=len)

    def scores(self, arm: str, measure: Measure) -> Float[np.ndarray, "seed env *rest"]:
        """Scores of ``measure`` for every seed of an arm on every environment."""
        envs = [np.concatenate([self._run_scores(run, measure) for run in self.runs[arm, env]]) for env in self.envs]
        return np.stack(envs, axis=1)

    def _run_scores(self, run: Run, measure: Measure) -> Float[np.ndarray, "seed *rest"]:
        name = run.path, measure.name
        if name not in self.computed:
            self.computed[name] = measure.compute(run)
        return self.computed[name]

    def seconds(self) -> float:
        """Seconds of training and evaluation, including runs that were already finished."""
        paths = {run.path: run for runs in self.runs.values() for run in runs}
        return float(sum(run.directory.read_json("timing.json")["total"] for run in paths.values()))


@dataclasses.dataclass(frozen=True)
class TrialOutcome:
    """Result of a trial by protocol 1."""

    runs: TrialRuns
    findings: list[Finding]
    num_looks: int
    seconds: float
    """Seconds of training and evaluation, including runs that were already finished."""


@dataclasses.dataclass(frozen=True)
class PairedOutcome:
    """Result of a paired trial: a finding for each of its claims, in their order."""

    runs: TrialRuns
    findings: list[PairedFinding]
    num_looks: int
    seconds: float
    """Seconds of training and evaluation, including runs that were already finished."""

    @property
    def verdict(self) -> str:
        """The verdict on the headline."""
        return self.findings[0].verdict


MakeCallbacks = Callable[["TrialJob"], list[Callback]]


def run_trial(trial: Trial, directory: Path, make_callbacks: MakeCallbacks) -> TrialOutcome:
    """Train until every claim is decided or all looks are spent; ``make_callbacks`` gives the callbacks of each run.

    Raises :class:`TrialInterrupted` if a run was stopped; the same call resumes it.
    """
    trial_runs, findings, look = TrialRuns(trial), [], 0
    while look < trial.max_looks and (not findings or any(finding.verdict == NOT_SHOWN for finding in findings)):
        seeds = range(look * trial.seeds_per_look, (look + 1) * trial.seeds_per_look)
        _train_arms(trial_runs, trial.arms, seeds, trial.seeds_per_look, directory, make_callbacks)
        findings = [claim.evaluate(trial_runs, trial.confidence_level) for claim in trial.claims]
        look += 1
    return TrialOutcome(trial_runs, findings, look, trial_runs.seconds())


def run_paired_trial(trial: PairedTrial, directory: Path, make_callbacks: MakeCallbacks) -> PairedOutcome:
    """Train until headline and mechanisms are decided or all looks are spent, as :func:`run_trial` does.

    A claim that was decided at a look is not judged again, and later looks train only arms whose headline or mechanism
    is undecided.
    """
    runs, num_pairs, num_looks = TrialRuns(trial), 0, 0
    findings: dict[int, PairedFinding] = {}
    arms = trial.arms
    for look in trial.looks:
        seeds = range(trial.first_seed + num_pairs, trial.first_seed + look.num_pairs)
        _train_arms(runs, arms, seeds, trial.chunk_size, directory, make_callbacks)
        num_pairs, num_looks = look.num_pairs, num_looks + 1
        trained = {arm.name for arm in arms}
        for i, (_, claim) in enumerate(trial.named_claims):
            if i not in findings or (findings[i].verdict == UNDECIDED and trained.issuperset(claim.arms)):
                findings[i] = judge_claim(claim, runs, look)
        open_claims = [
            claim
            for i, (kind, claim) in enumerate(trial.named_claims)
            if kind != CONTEXT and findings[i].verdict == UNDECIDED
        ]
        arms = tuple(arm for arm in trial.arms if any(arm.name in claim.arms for claim in open_claims))
        if not arms:
            break
    return PairedOutcome(runs, [findings[i] for i in sorted(findings)], num_looks, runs.seconds())


def _train_arms(
    runs: TrialRuns,
    arms: Sequence[Arm],
    seeds: Sequence[int],
    chunk_size: int,
    directory: Path,
    make_callbacks: MakeCallbacks,
) -> None:
    """Train or load the runs of these arms with these seeds, in chunks that train together."""
    trial = runs.trial
    size = 1 if trial.sequential_seeds else chunk_size
    chunks = [tuple(seeds[i : i + size]) for i in range(0, len(seeds), size)]
    jobs = [(chunk, arm, env) for chunk in chunks for arm in arms for env in trial.envs]
    for number, (chunk, arm, env) in enumerate(jobs, 1):
        job = TrialJob(arm, env, chunk, number, len(jobs))
        runs.add(job, _find_or_train(trial, job, directory, make_callbacks(job)))


def _find_or_train(trial: Arms, job: TrialJob, directory: Path, callbacks: list[Callback]) -> Run:
    """The run of a job: loaded, resumed or trained, and reduced to what was learned, which is all that measures need.

    Replay buffers of all arms of all papers would fill a disk.
    """
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
    run.directory.keep_part(METHOD_STATE_PATH)
    return run


def _run_name(trial: Arms, job: TrialJob) -> str:
    """Name of the run's directory, which changes with all that changes results, and does not with the arm's name.

    Code alone is not seen: after a change of what an environment or a method does, runs of before are to be deleted.
    """
    arm, steps, env = job.arm, job.arm.steps or trial.steps, job.arm.env_for(job.env)
    settings = [to_config(arm.method), to_config(dict(arm.options)), steps, trial.num_episodes, _env_settings(env)]
    env = env.replace(":", "-").replace("/", "-")
    return f"{arm.method.name}-{env}-{digest(settings)}-seeds-{job.seeds[0]}-{job.seeds[-1]}".replace(" ", "-")


def _env_settings(env: str) -> Any:
    """Settings of an environment that a module defines under this name; any other name says them itself."""
    environment = registry.named_object(env)
    try:
        return to_config(environment)
    except TypeError:  # some part of it is no configuration
        return repr(environment)
