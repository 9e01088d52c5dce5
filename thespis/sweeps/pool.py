"""Jobs given to Ray, so many at once, and started again where their process is lost."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from thespis.core.apart import cores
from thespis.loops.cluster import Connection, lost
from thespis.sweeps.job import Ended, Home, work
from thespis.sweeps.plan import Job

TRIES = 4  # a job is started, and started again three times
THREADS = 2
"""XLA's threads in a job, though it has one CPU, where training here would have so many or more: alone, a thread cuts
wide matrix products otherwise and so adds them up in another order. From two on their number changed no bit."""

HEARD = 0.2  # seconds between two looks at whether somebody wants to stop


class Pool:
    """Runs jobs, ``at_once`` of them, in processes of their own, on one CPU each."""

    def __init__(self, joined: Connection, home: Home, at_once: int):
        import ray

        how = {"num_cpus": 1, "max_retries": 0, "max_calls": 1, "scheduling_strategy": "SPREAD"}
        environment = joined.environment | {"NPROC": str(min(THREADS, _threads()))}
        self._task = ray.remote(**how, runtime_env={"env_vars": environment})(work)
        self._home, self._at_once = home, at_once
        self._under_way: dict[Any, Job] = {}

    def run(
        self, jobs: Sequence[Job], stop: threading.Event, tell: Callable[[Job, str], None]
    ) -> Iterator[tuple[Job, Ended]]:
        """Jobs as they end. ``stop`` makes all save what they have and end; ``tell`` is told of a job begun again."""
        waiting, tries, stopping = deque(jobs), Counter(), False
        while self._under_way or (waiting and not stop.is_set()):
            while waiting and len(self._under_way) < self._at_once and not stop.is_set():
                job = waiting.popleft()
                tries[job.name] += 1
                self._under_way[self._task.remote(job.written(), self._home)] = job
            if stop.is_set() and not stopping:
                stopping = True
                self._stop()
            for job, ended in self._answers():
                if ended.reason == "interrupted" and not stop.is_set():  # by somebody else, where it ran
                    ended = Ended("lost", f"its process was stopped from outside, {TRIES} times")
                if ended.reason == "lost" and not stop.is_set() and tries[job.name] < TRIES:
                    tell(job, f"its process was lost and is started again ({tries[job.name]} of {TRIES - 1} times)")
                    waiting.appendleft(job)
                else:
                    yield job, ended

    def close(self) -> None:
        """End what is under way, whatever becomes of it."""
        import ray

        for answer in self._under_way:
            with contextlib.suppress(Exception):
                ray.cancel(answer, force=True)
        self._under_way = {}

    def _stop(self) -> None:
        """Ask the jobs under way to save what they have and stop, as Ctrl-C asks a run."""
        import ray

        for answer in self._under_way:
            with contextlib.suppress(*lost()):
                ray.cancel(answer, force=False)

    def _answers(self) -> list[tuple[Job, Ended]]:
        import ray

        if not self._under_way:
            return []
        done, _ = ray.wait(list(self._under_way), num_returns=1, timeout=HEARD)
        return [(self._under_way.pop(answer), _ended(answer)) for answer in done]


def _threads() -> int:
    """XLA's threads where a run is trained in this process."""
    asked = os.environ.get("NPROC", "")
    return int(asked) if asked.isdigit() and int(asked) else cores()


def _ended(answer: Any) -> Ended:
    """What a job said, or what is to be said of one that could not say anything."""
    import ray
    from ray import exceptions

    try:
        return ray.get(answer)
    except exceptions.TaskCancelledError:
        return Ended("interrupted")
    except lost() as error:
        return Ended("lost", f"its process was lost {TRIES} times, the last time so: {_line(error)}")
    except exceptions.RayTaskError as error:
        if isinstance(error.cause, KeyboardInterrupt):
            return Ended("interrupted")
        return Ended("failed", f"its process cannot work: {_line(error.cause or error)}")
    except exceptions.RayError as error:
        return Ended("failed", f"its process cannot work: {_line(error)}")


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
