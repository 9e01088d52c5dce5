"""Sweeps: training of every setting of a grid with every seed, in parallel processes, and the results.

Results have a row per setting, the best one first, for the terminal and for ``sweep.json``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from thespis.core.contracts import Method
from thespis.core.errors import UserError
from thespis.evaluation.comparison import GroupSummary, group_runs
from thespis.evaluation.statistics import bootstrap_interval, iqm
from thespis.runs.events import Callback, EventBus
from thespis.runs.store import RunDirectory
from thespis.runs.trust import named_modules
from thespis.runtime.interrupts import catch_interrupts
from thespis.runtime.ray_cluster import connect
from thespis.runtime.vmap_exact import num_cores
from thespis.sweeps.jobs import JobPool, JobResult, SweepLocation, unpack_run
from thespis.sweeps.plan import Grid, GridPoint, SweepJob, SweepPlan, plan_sweep, write_summary


@dataclasses.dataclass(frozen=True)
class SweepRow:
    """One setting with its finished runs and the greedy scores of their seeds; no ``summary`` without evaluations."""

    name: str
    settings: tuple[str, ...]
    runs: tuple[str, ...]
    seeds: tuple[int, ...]
    summary: GroupSummary | None
    num_planned_seeds: int
    """Number of seeds once all runs are finished."""

    def to_json(self) -> dict[str, Any]:
        """The result as plain dictionaries and lists."""
        summary = self.summary or GroupSummary(self.name, (), float("nan"), None)
        row = {"name": self.name, "settings": self.settings, "runs": self.runs, "seeds": self.seeds}
        return row | {"scores": summary.scores, "iqm": summary.iqm, "interval": summary.interval}


@dataclasses.dataclass(frozen=True)
class JobFailure:
    """A job without a finished run; ``reason`` as in :class:`thespis.sweeps.jobs.JobResult`."""

    run: str
    reason: str
    message: str


@dataclasses.dataclass(frozen=True)
class SweepResult:
    """Results of a sweep so far.

    ``rows`` start with the best setting; ``reason`` is ``finished``, ``stopped`` or ``interrupted``.
    """

    path: Path
    env: str | None
    rows: tuple[SweepRow, ...]
    failures: tuple[JobFailure, ...]
    reason: str

    @property
    def best(self) -> SweepRow:
        """The setting with the highest greedy return."""
        return self.rows[0]

    def compare_command(self) -> str | None:
        """The command that compares the two best settings; ``None`` if there are not two."""
        first, second = ([row for row in self.rows if row.summary] + [None, None])[:2]
        return f"thespis compare {self._runs(first)} {self._runs(second)}" if first and second else None

    def _runs(self, row: SweepRow) -> str:
        """The runs of a setting as shell arguments."""
        first = Path(row.runs[0]).name.rpartition(",seed")[0]
        if len(row.runs) > 2 and {str(path) for path in self.path.glob(f"{first},seed*")} == set(row.runs):
            return f"{shlex.quote(str(self.path / first))},seed*"
        return shlex.join(row.runs)

    def to_json(self) -> dict[str, Any]:
        """The result as plain dictionaries and lists."""
        rows, failures = (
            [row.to_json() for row in self.rows],
            [dataclasses.asdict(failure) for failure in self.failures],
        )
        result = {"path": str(self.path), "env": self.env, "reason": self.reason}
        return result | {"settings": rows, "failed": failures, "compare": self.compare_command()}


def collect_results(plan: SweepPlan, failures: list[JobFailure], reason: str) -> SweepResult:
    """Results of a sweep from the runs in its directory; also written there as ``sweep.json``."""
    rows = sorted((_sweep_row(plan, setting) for setting in plan.grid_points), key=_sort_key)
    sweep = SweepResult(plan.path, plan.config["env"], tuple(rows), tuple(failures), reason)
    write_summary(plan.path, {"format": 1, "id": plan.id} | sweep.to_json())
    return sweep


def _sweep_row(plan: SweepPlan, setting: GridPoint) -> SweepRow:
    runs = [run for job in setting.jobs if (run := plan.finished_run(job))]
    seeds = tuple(seed for run in runs for seed in run.config["seeds"])
    num_planned = sum(len(job.train_args["seeds"]) for job in setting.jobs)
    paths = tuple(str(run.path) for run in runs)
    return SweepRow(setting.name, setting.settings, paths, seeds, _summary(setting, runs), num_planned)


def _summary(setting: GridPoint, runs: list[RunDirectory]) -> GroupSummary | None:
    if not runs or runs[0].config["env"] is None:
        return None
    (group,) = group_runs([run.path for run in runs])
    scores = np.array(group.scores)
    interval = bootstrap_interval(scores, bounds=group.bounds)
    return GroupSummary(setting.name, group.scores, iqm(scores), interval)


def _sort_key(row: SweepRow) -> float:
    return -row.summary.iqm if row.summary else float("inf")


def sweep(
    method: str | Method,
    env: Any = None,
    *,
    steps: int | None = None,
    seeds: int | list[int] = 1,
    grid: Grid = (),
    settings: list[str] | dict[str, Any] | None = None,
    seeds_per_job: int | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    out: str | Path | None = None,
    callbacks: Iterable[Callback] = (),
    **train_args: Any,
) -> SweepResult:
    """Train every setting of a grid with every seed in Ray processes, and return the results, the best setting first.

    Each job is a run of :func:`thespis.train` with one setting and ``seeds_per_job`` seeds (``None``: all of them), in
    a directory below ``out``. Runs that are already finished there are skipped, stopped ones are resumed.

    ``grid``: values by name of a setting, ``{"learning_rate": [1e-3, 3e-4]}``; every combination is trained.
    ``settings`` apply to all jobs. ``jobs``: number of parallel jobs, with one CPU each; by default the number of CPUs.
    ``cluster``: as in :func:`thespis.runtime.ray_cluster.connect`. ``method``, ``env``, ``steps``, ``seeds`` and
    ``train_args``: as in :func:`thespis.train`. ``callbacks``: functions of events: ``start`` (``run``: the sweep's
    directory, ``jobs``, ``finished``: number of jobs that were already finished), ``warning`` (``message``), and for
    every job ``done`` (``run``, ``reason``, ``message``; see :class:`thespis.sweeps.jobs.JobResult`); returning
    ``True`` stops the sweep.

    Raises:
        UserError: for errors that can be detected before a job starts. A job that fails is listed in ``failures`` of
            the result, and the other jobs continue.
    """
    if jobs is not None and jobs < 1:
        raise UserError(f"--jobs {jobs}: it must be at least 1")
    planned = plan_sweep(
        method,
        env,
        seeds=seeds,
        grid=grid,
        seeds_per_job=seeds_per_job,
        settings=settings,
        out=out,
        train_args={"steps": steps} | train_args,
    )
    todo, bus = [job for job in planned.jobs if planned.finished_run(job) is None], EventBus(callbacks)
    if todo:
        failures, reason = _run_jobs(planned, todo, jobs, cluster, bus)
    else:
        _emit_start(planned, 0, bus)
        failures, reason = [], "finished"
    return collect_results(planned, failures, reason)


def _emit_start(planned: SweepPlan, todo: int, bus: EventBus) -> None:
    planned.create()
    total = len(planned.jobs)
    bus.emit("start", 0, run=str(planned.path), jobs=total, finished=total - todo)


def _run_jobs(
    planned: SweepPlan, todo: list[SweepJob], jobs: int | None, cluster: str | None, bus: EventBus
) -> tuple[list[JobFailure], str]:
    """Run the jobs; returns failures and the reason of the end."""
    failures: list[JobFailure] = []
    location = SweepLocation(str(planned.path.absolute()), planned.id, os.getcwd(), named_modules())
    with _job_pool(location, todo, jobs, cluster) as pool, catch_interrupts() as stop:
        _emit_start(planned, len(todo), bus)
        stopped = False

        def emit_warning(job: SweepJob, message: str) -> None:
            bus.emit("warning", 0, message=f"{job.name}: {message}")

        for job, result in pool.run(todo, stop, emit_warning):
            path = planned.path / job.name
            if result.archive:
                unpack_run(result.archive, path)
            for message in result.warnings:
                emit_warning(job, message)
            if result.reason not in ("finished", "interrupted"):
                failures.append(JobFailure(str(path), result.reason, result.message))
            if _emit_done(bus, planned.config["steps"], path, result) and not stop.is_set():
                stopped = True
                stop.set()
        reason = "stopped" if stopped else "interrupted" if stop.is_set() else "finished"
    return failures, reason


def _emit_done(bus: EventBus, steps: int, path: Path, ended: JobResult) -> bool:
    return bus.emit(
        "done", steps if ended.reason == "finished" else 0, run=str(path), reason=ended.reason, message=ended.message
    )


@contextlib.contextmanager
def _job_pool(home: SweepLocation, todo: list[SweepJob], jobs: int | None, cluster: str | None) -> Iterator[JobPool]:
    """Context of a job pool; its processes, and a Ray instance started here, are shut down afterwards."""
    is_local = cluster is None
    connection = connect(cluster, jobs or (min(num_cores(), len(todo)) if is_local else 1), "jobs")
    pool = None
    try:
        pool = JobPool(connection, home, jobs or _cluster_cpus())
        yield pool
    finally:
        if pool is not None:
            pool.close()
        connection.disconnect()


def _cluster_cpus() -> int:
    """Number of CPUs of the connected Ray cluster."""
    import ray

    return int(ray.cluster_resources().get("CPU", 1))
