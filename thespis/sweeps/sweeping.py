"""A sweep from its first job to its table."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from thespis.core.apart import cores
from thespis.core.contracts import Method
from thespis.core.errors import UserError
from thespis.loops.cluster import connect
from thespis.loops.interrupts import interrupts
from thespis.runs.events import Bus, Listener
from thespis.sweeps.grid import Grid
from thespis.sweeps.job import Ended, Home
from thespis.sweeps.parcel import unpack
from thespis.sweeps.plan import Job, Plan, plan
from thespis.sweeps.pool import Pool
from thespis.sweeps.results import Failure, Sweep, gathered


def sweep(
    method: str | Method,
    env: Any = None,
    *,
    steps: int,
    seeds: int | list[int] = 1,
    grid: Grid = (),
    settings: list[str] | dict[str, Any] | None = None,
    seeds_per_job: int | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    out: str | Path | None = None,
    callbacks: Iterable[Listener] = (),
    **asked: Any,
) -> Sweep:
    """Train every setting of a grid with every seed, in processes of Ray's, and return the table, the best one first.

    Each job is the run that :func:`thespis.train` gives for one setting and ``seeds_per_job`` seeds (``None``: all of
    them), in a directory below ``out``; those that lie there finished are not done again, and those that were stopped
    go on.

    ``grid``: values by name of a setting, ``{"learning_rate": [1e-3, 3e-4]}``; every combination is trained.
    ``settings`` hold for all. ``jobs``: how many at once, with one CPU each; by default as many as there are CPUs.
    ``cluster``: as of :func:`thespis.loops.cluster.connect`. ``method``, ``env``, ``steps``, ``seeds`` and ``asked``:
    as of :func:`thespis.train`. ``callbacks``: functions of events: ``start`` (``run``: the sweep's directory,
    ``jobs``, ``finished``: how many of them were found so), ``warning`` (``message``), and for every job ``done``
    (``run``, ``reason``, ``message``; see :class:`thespis.sweeps.job.Ended`); returning ``True`` stops the sweep.

    Raises:
        UserError: for whatever can be seen to be wrong before anything starts. What goes wrong in a job is in
            ``failures`` of the result, and the others go on.
    """
    if jobs is not None and jobs < 1:
        raise UserError(f"--jobs {jobs}: at least one must run")
    planned = plan(
        method, env, seeds=seeds, grid=grid, seeds_per_job=seeds_per_job, settings=settings, out=out,
        asked={"steps": steps} | asked,
    )  # fmt: skip
    todo, bus = [job for job in planned.jobs if planned.run(job) is None], Bus(callbacks)
    if todo:
        failures, reason = _spread(planned, todo, jobs, cluster, bus)
    else:
        _begin(planned, 0, bus)
        failures, reason = [], "finished"
    return gathered(planned, failures, reason)


def _begin(planned: Plan, todo: int, bus: Bus) -> None:
    planned.begin()
    total = len(planned.jobs)
    bus.emit("start", 0, run=str(planned.path), jobs=total, finished=total - todo)


def _spread(
    planned: Plan, todo: list[Job], jobs: int | None, cluster: str | None, bus: Bus
) -> tuple[list[Failure], str]:
    """Run the jobs. Returns what failed, and why it is over."""
    failures: list[Failure] = []
    home = Home(str(planned.path.absolute()), planned.id, os.getcwd())
    with _pool(home, todo, jobs, cluster) as pool, interrupts() as stop:
        _begin(planned, len(todo), bus)
        stopped = False

        def tell(job: Job, message: str) -> None:
            bus.emit("warning", 0, message=f"{job.name}: {message}")

        for job, ended in pool.run(todo, stop, tell):
            path = planned.path / job.name
            if ended.parcel:
                unpack(ended.parcel, path)
            for message in ended.warnings:
                tell(job, message)
            if ended.reason not in ("finished", "interrupted"):
                failures.append(Failure(str(path), ended.reason, ended.message))
            if _done(bus, job, path, ended) and not stop.is_set():
                stopped = True
                stop.set()
        reason = "stopped" if stopped else "interrupted" if stop.is_set() else "finished"
    return failures, reason


def _done(bus: Bus, job: Job, path: Path, ended: Ended) -> bool:
    steps = job.asked["steps"] if ended.reason == "finished" else 0
    return bus.emit("done", steps, run=str(path), reason=ended.reason, message=ended.message)


@contextlib.contextmanager
def _pool(home: Home, todo: list[Job], jobs: int | None, cluster: str | None) -> Iterator[Pool]:
    """Processes for the jobs; they, and a Ray of our own, are gone afterwards."""
    here = cluster is None
    joined = connect(cluster, jobs or (min(cores(), len(todo)) if here else 1), "jobs")
    pool = None
    try:
        pool = Pool(joined, home, jobs or _room())
        yield pool
    finally:
        if pool is not None:
            pool.close()
        joined.leave()


def _room() -> int:
    """CPUs of all machines of the Ray that we are connected to."""
    import ray

    return int(ray.cluster_resources().get("CPU", 1))
