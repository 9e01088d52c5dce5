"""Worlds shared out to processes of Ray's, on this machine or on many.

A block goes out as one copy of the policies' leaves a machine and comes back as numpy arrays; what a worker answers
depends on what it was asked and on nothing else, so neither does a result. A worker that is lost is replaced: its
worlds begin new episodes, from seeds that only the run, the world and the tick decide, and its share of the block is
collected again, so that every step counts once.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.loops.clock import Clock
from thespis.loops.cluster import connect, lost
from thespis.loops.host_state import HostWorld
from thespis.loops.shares import Shares, Split
from thespis.loops.worker import Collected, Recipe, Worker, bare

LIVES = 3  # times that a worker may be lost over one question
STARTED_WITHIN = 120.0  # seconds until a worker must have made its worlds
CLOSED_WITHIN = 5.0  # seconds for closing the environments; then the processes end anyhow


class Workers:
    """The worlds of a run in ``count`` processes. ``address``: see :func:`~thespis.loops.cluster.connect`.

    Raises:
        UserError: if Ray or its cluster is not to be had, or an environment cannot be made or raises.
    """

    def __init__(self, recipe: Recipe, count: int, address: str | None = None):
        self._joined = connect(address, count)
        self._split = Split(recipe.seeds, recipe.share)
        self._workers: list[Any] = [None] * count
        self._news: list[str] = []
        try:
            self._recipe = _sent(recipe)
            opening = [self._start(i) for i in range(count)]
            self.spec: EnvSpec = [_opened(i, begun) for i, begun in enumerate(opening)][-1]
        except BaseException as error:
            self.close()
            if isinstance(error, lost()):
                raise UserError(f"a worker ended while it made its environments: {_first_line(error)}") from error
            raise

    # -- what the loop asks ----------------------------------------------------------------------------------

    def begin(self, roots: Any, memory: Any, ticks: int) -> HostWorld:
        """Fresh episodes everywhere, begun after ``ticks`` ticks."""
        keys = np.asarray(jax.random.key_data(roots))

        def ask(i: int) -> Any:
            return self._workers[i].begin.remote(keys, self._split.memory(memory, i), ticks)

        return self._split.whole(self._all(ask, ask))

    def collect(self, fixed: list, world: HostWorld, ticks: np.int32, clock: Clock) -> tuple[HostWorld, Shares, Shares]:
        """One block from ``world`` on, after ``ticks`` ticks: the worlds after it, transitions, and outcomes."""
        import ray

        began, sent = time.perf_counter(), ray.put(bare(fixed))

        def ask(i: int) -> Any:
            return self._workers[i].collect.remote(sent, self._split.part(world, i), ticks)

        def anew(i: int) -> Any:
            return self._workers[i].collect_anew.remote(sent, self._split.memory(world.memory, i), ticks)

        found: list[Collected] = self._all(ask, anew)
        _count(clock, [one.seconds for one in found], time.perf_counter() - began)
        rows, ends = (
            Shares(leaves, self._split.seeds) for leaves in zip(*((f.rows, f.ends) for f in found), strict=True)
        )
        return self._split.whole([one.world for one in found]), rows, ends

    def save(self) -> dict[str, Any] | None:
        """What the worlds will do next, under names that begin with their worker's number; not those of lost ones."""
        import ray

        asked, saved = [worker.save.remote() for worker in self._workers], {}
        for i, answer in enumerate(asked):
            with _in_words(i), contextlib.suppress(*lost()):  # the next block will find that it is lost
                own: Any = ray.get(answer)
                if own is None:
                    return None
                saved |= {f"{i}/{name}": value for name, value in own.items()}
        return saved

    def load(self, saved: dict[str, Any] | None, roots: Any, world: HostWorld, ticks: int) -> tuple[HostWorld, int]:
        """``world`` put back to where :meth:`save` found it, and how many environments begin new episodes instead."""
        keys = np.asarray(jax.random.key_data(roots))
        own = [_own(saved or {}, i) for i in range(len(self._workers))]

        def ask(i: int) -> Any:
            if own[i]:
                return self._workers[i].load.remote(own[i], self._split.part(world, i))
            return self._workers[i].begin.remote(keys, self._split.memory(world.memory, i), ticks)

        found = self._all(ask, ask)
        return self._split.whole(found), sum(self._split.size for one in own if not one)

    def news(self) -> list[str]:
        """What the user should know of the last blocks, a line each, told once."""
        told, self._news = self._news, []
        return told

    def close(self) -> None:
        """Close the environments, end the workers, and Ray with them if it is ours."""
        import ray
        import ray.exceptions

        workers = [worker for worker in self._workers if worker is not None]
        with contextlib.suppress(ray.exceptions.RayError):
            ray.wait([worker.close.remote() for worker in workers], num_returns=len(workers), timeout=CLOSED_WITHIN)
        for worker in workers:
            ray.kill(worker)
        self._workers = []
        self._joined.leave()

    # -- workers that come and go ------------------------------------------------------------------------------

    def _start(self, i: int) -> Any:
        """Start worker ``i``. Returns its answer to being opened, which is yet to come."""
        import ray

        how = {"num_cpus": 1, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
        self._workers[i] = ray.remote(**how, runtime_env={"env_vars": self._joined.environment})(Worker).remote()
        return self._workers[i].open.remote(self._recipe, i)

    def _replace(self, i: int) -> None:
        import ray

        ray.kill(self._workers[i])
        _opened(i, self._start(i))
        self._news.append(
            f"worker {i} was lost and is replaced: its {self._split.size} environments begin new episodes"
        )

    def _all(self, ask: Callable[[int], Any], again: Callable[[int], Any]) -> list[Any]:
        """What every worker answers to ``ask``; what replaces a lost one is asked ``again``."""
        asked = [ask(i) for i in range(len(self._workers))]
        return [self._answer(i, answer, again) for i, answer in enumerate(asked)]

    def _answer(self, i: int, answer: Any, again: Callable[[int], Any]) -> Any:
        import ray
        import ray.exceptions

        for life in range(LIVES):
            with _in_words(i), contextlib.suppress(*lost()):
                if life:
                    self._replace(i)
                    answer = again(i)
                return ray.get(answer)
        raise UserError(
            f"worker {i} was lost {LIVES} times in a row: its environments end their process, or it lacks memory"
        )


def _own(saved: dict[str, Any], i: int) -> dict[str, Any]:
    named = {name.partition("/"): value for name, value in saved.items()}
    return {name: value for (number, _, name), value in named.items() if number == str(i)}


def _count(clock: Clock, workers: list[dict[str, float]], seconds: float) -> None:
    """Of a block's ``seconds``, what the slowest worker spent on each purpose; the rest went to exchanging it."""
    slowest = {purpose: max(one[purpose] for one in workers) for purpose in workers[0]}
    slowest["exchange"] = max(seconds - sum(slowest.values()), 0.0)
    for purpose, spent in slowest.items():
        clock.seconds[purpose] = clock.seconds.get(purpose, 0.0) + spent


def _sent(recipe: Recipe) -> Any:
    import ray

    try:
        return ray.put(recipe)
    except Exception as error:  # whatever a user's object raises when it is written down
        raise UserError(
            f"the environment cannot be sent to workers; give its name, its class or a function ({_first_line(error)})"
        ) from error


def _opened(i: int, answer: Any) -> EnvSpec:
    import ray

    with _in_words(i):
        return ray.get(answer, timeout=STARTED_WITHIN)


@contextlib.contextmanager
def _in_words(i: int) -> Iterator[None]:
    """What a user's world raised in worker ``i`` is raised here, without Ray's account of its way."""
    import ray.exceptions

    try:
        yield
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, UserError):
            raise UserError(f"worker {i}: {error.cause}") from None
        if isinstance(error.cause, ImportError):
            raise UserError(f"worker {i} cannot import what the run is made of: {error.cause}") from None
        raise
    except ray.exceptions.GetTimeoutError:
        raise UserError(
            f"worker {i} did not start within {STARTED_WITHIN:.0f} seconds: is there a free CPU for it?"
        ) from None


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0]
