"""Jobs of a sweep: the execution of one job in a worker process, the pool of all jobs, and archives of their runs.

A job is an ordinary run, in the sweep's directory or archived for it. The pool runs a fixed number of jobs in parallel
as Ray tasks, and restarts jobs of lost processes. An archive holds the files of a run directory as byte arrays, which
Ray sends from one machine to another.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8

from thespis.core.errors import UserError
from thespis.runs import checkpoint
from thespis.runs.events import Event
from thespis.runs.serialization import read_json
from thespis.runs.trust import trusting
from thespis.runtime import disk
from thespis.runtime.ray_cluster import RayConnection, worker_lost_errors
from thespis.runtime.user_frames import describe_error, user_frame_text
from thespis.runtime.vmap_exact import num_cores
from thespis.sweeps.plan import SUMMARY_FILE, SweepJob

RunArchive = dict[str, UInt8[np.ndarray, " bytes"]]
"""Files of a directory by relative path."""


def pack_run(directory: Path) -> RunArchive:
    """All files of a run except its lock, older checkpoints and partially written files.

    The newest checkpoint is enough to evaluate and to resume. Files are memory-mapped: they need no memory before they
    are sent, and may be deleted meanwhile.
    """
    older = set(checkpoint.list_checkpoints(directory / "checkpoints")[:-1])
    files = [path for path in sorted(directory.rglob("*")) if path.is_file() and not path.is_symlink()]
    selected = [
        path for path in files if path not in older and path.name != ".lock" and path.suffix != disk.PARTIAL_SUFFIX
    ]
    return {path.relative_to(directory).as_posix(): _memory_map(path) for path in selected}


def _memory_map(path: Path) -> UInt8[np.ndarray, " bytes"]:
    if path.stat().st_size == 0:
        return np.zeros(0, np.uint8)
    return np.memmap(path, np.uint8, "r")


def unpack_run(archive: RunArchive, directory: Path) -> None:
    """Write the files into ``directory``, atomically: it appears only when all of them are on disk.

    An existing directory is replaced. Raises :class:`UserError` for a disk error.
    """
    partial, previous = (
        directory.with_name(f".{directory.name}{ending}") for ending in (disk.PARTIAL_SUFFIX, ".before")
    )
    with disk.as_user_error("a finished run", directory.parent):
        for leftover in (partial, previous):
            shutil.rmtree(leftover, ignore_errors=True)
        for name, content in archive.items():
            path = partial / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with disk.atomic_write(path) as file:
                file.write(np.ascontiguousarray(content).data)
        if directory.exists():
            os.replace(directory, previous)
        os.replace(partial, directory)
        disk.fsync_directory(directory.parent)
        shutil.rmtree(previous, ignore_errors=True)


class SweepLocation(NamedTuple):
    """Directory of a sweep: its absolute path, and the id of the sweep.

    The id tells the directory from directories of the same name on other machines. ``cwd`` is the user's working
    directory, ``trust`` the modules that runs may name which a job reads, such as those of opponents.
    """

    path: str
    sweep_id: str
    cwd: str
    trust: tuple[str, ...] = ()


class JobResult(NamedTuple):
    """Outcome of a job.

    ``reason``: ``finished``, ``interrupted``, ``diverged``, ``failed`` (an error that the user can fix), ``lost`` (its
    process died repeatedly) or ``broken`` (an unexpected error). ``archive`` is empty for a run in the sweep's
    directory.
    """

    reason: str
    message: str = ""
    warnings: tuple[str, ...] = ()
    archive: RunArchive = {}  # noqa: RUF012 (never written to)


def run_job(job: SweepJob, location: SweepLocation) -> JobResult:
    """Train the run of a serialized ``job``, or resume it if it was stopped before.

    Raises nothing but an interruption.
    """
    with contextlib.suppress(OSError):  # for relative paths, where the disk is shared
        os.chdir(location.cwd)
    is_local = sees_directory(location)
    root = Path(location.path) if is_local else Path(tempfile.gettempdir()) / f"thespis-{location.sweep_id}"
    with trusting(location.trust):
        result = _train_job(job, root / job.name)
    if is_local or result.reason == "interrupted":  # a later job on this machine may resume it
        return result
    archive = pack_run(root / job.name) if result.reason == "finished" else {}
    shutil.rmtree(root / job.name, ignore_errors=True)
    with contextlib.suppress(OSError):
        root.rmdir()
    return result._replace(archive=archive)


def sees_directory(location: SweepLocation) -> bool:
    """Whether the sweep's directory is visible to this process: on its machine, or on a shared disk."""
    summary = Path(location.path) / SUMMARY_FILE
    try:
        return summary.is_file() and read_json(summary).get("id") == location.sweep_id
    except UserError:
        return False


def _train_job(job: SweepJob, path: Path) -> JobResult:
    from thespis import api
    from thespis.training.driver import DivergenceError

    warnings: list[str] = []
    reasons: list[str] = []

    def record_event(event: Event) -> None:
        if event.kind == "warning":
            warnings.append(event.data["message"])
        elif event.kind == "done":
            reasons.append(event.data["reason"])

    try:
        train_args = job.deserialize().train_args
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (path / "run.json").is_file():
            # trusted: the plan found this run because it names the classes that the job itself names
            api.resume(path, train_args["env"], callbacks=[record_event], trust=None)
        else:
            shutil.rmtree(path, ignore_errors=True)  # left incomplete by a process that was killed
            api.train(**train_args, out=path, callbacks=[record_event])
    except DivergenceError as error:
        return JobResult("diverged", str(error), tuple(warnings))
    except UserError as error:
        frame = user_frame_text(error)  # an environment's exception
        return JobResult("failed", f"{error}\n{frame}" if frame else str(error), tuple(warnings))
    except Exception as error:
        if frame := user_frame_text(error):
            return JobResult("failed", f"{describe_error(error)}\n{frame}", tuple(warnings))
        return JobResult("broken", traceback.format_exc(), tuple(warnings))
    return JobResult(reasons[-1], "", tuple(warnings))


MAX_ATTEMPTS = 4  # the first start of a job and three restarts
MAX_THREADS = 2
"""Limit of XLA's threads in a job, above its single CPU: one thread splits wide matrix products differently and so sums
them in another order. From two threads on, their number changed no bit of the results."""

POLL_INTERVAL = 0.2  # seconds between two checks for a stop request


class JobPool:
    """Runs jobs in separate processes with one CPU each, ``num_parallel`` at a time."""

    def __init__(self, connection: RayConnection, location: SweepLocation, num_parallel: int):
        import ray

        task_options = {"num_cpus": 1, "max_retries": 0, "max_calls": 1, "scheduling_strategy": "SPREAD"}
        env_vars = connection.env_vars | {"NPROC": str(min(MAX_THREADS, _num_threads()))}
        self._task = ray.remote(**task_options, runtime_env={"env_vars": env_vars})(run_job)
        self._home, self._at_once = location, num_parallel
        self._under_way: dict[Any, SweepJob] = {}

    def run(
        self, jobs: Sequence[SweepJob], stop: threading.Event, warn: Callable[[SweepJob, str], None]
    ) -> Iterator[tuple[SweepJob, JobResult]]:
        """Yield jobs with their results as they end.

        ``stop`` makes all running jobs save a checkpoint and end; ``warn`` is called for every restarted job.
        """
        waiting, attempts, stopping = deque(jobs), Counter(), False
        while self._under_way or (waiting and not stop.is_set()):
            while waiting and len(self._under_way) < self._at_once and not stop.is_set():
                job = waiting.popleft()
                attempts[job.name] += 1
                self._under_way[self._task.remote(job.serialize(), self._home)] = job
            if stop.is_set() and not stopping:
                stopping = True
                self._interrupt_jobs()
            for job, result in self._finished_jobs():
                if result.reason == "interrupted" and not stop.is_set():  # stopped on its machine by someone else
                    result = JobResult("lost", f"its process was stopped from outside, {MAX_ATTEMPTS} times")
                if result.reason == "lost" and not stop.is_set() and attempts[job.name] < MAX_ATTEMPTS:
                    warn(
                        job,
                        f"its process was lost and is restarted ({attempts[job.name]} of {MAX_ATTEMPTS - 1} times)",
                    )
                    waiting.appendleft(job)
                else:
                    yield job, result

    def close(self) -> None:
        """Kill all jobs that are still running."""
        import ray

        for task in self._under_way:
            with contextlib.suppress(Exception):
                ray.cancel(task, force=True)
        self._under_way = {}

    def _interrupt_jobs(self) -> None:
        """Interrupt running jobs, so that they save a checkpoint and stop as on Ctrl-C."""
        import ray

        for task in self._under_way:
            with contextlib.suppress(*worker_lost_errors()):
                ray.cancel(task, force=False)

    def _finished_jobs(self) -> list[tuple[SweepJob, JobResult]]:
        import ray

        if not self._under_way:
            return []
        done, _ = ray.wait(list(self._under_way), num_returns=1, timeout=POLL_INTERVAL)
        return [(self._under_way.pop(task), _job_result(task)) for task in done]


def _num_threads() -> int:
    """Number of XLA's threads for training in this process."""
    value = os.environ.get("NPROC", "")
    return int(value) if value.isdigit() and int(value) else num_cores()


def _job_result(answer: Any) -> JobResult:
    """Result of a job, also of one whose process failed."""
    import ray
    from ray import exceptions

    try:
        return ray.get(answer)
    except exceptions.TaskCancelledError:
        return JobResult("interrupted")
    except worker_lost_errors() as error:
        return JobResult("lost", f"its process was lost {MAX_ATTEMPTS} times, the last time with: {_one_line(error)}")
    except exceptions.RayTaskError as error:
        if isinstance(error.cause, KeyboardInterrupt):
            return JobResult("interrupted")
        return JobResult("failed", f"its process failed: {_one_line(error.cause or error)}")
    except exceptions.RayError as error:
        return JobResult("failed", f"its process failed: {_one_line(error)}")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
