"""Where requests meet the engine: those that arrive together are answered together, by one thread."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import AsyncGenerator

from thespis.core.errors import UserError
from thespis.language.engine import Piece
from thespis.language.local import Ask, Local


class _Job:
    """A request under way, and the event loop that waits for its parts. ``gone``: nobody waits any more."""

    def __init__(self, ask: Ask):
        self.ask, self.gone = ask, False
        self.parts: asyncio.Queue[Piece | Exception] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()

    def put(self, part: Piece | Exception) -> None:
        """Called by the thread of the engine."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.parts.put_nowait, part)


class Desk:
    """One engine for many who ask. ``window``: seconds in which a first request waits for others; ``limit``: requests
    that wait or are being answered, at most (0: any number).
    """

    def __init__(self, engine: Local, window: float, limit: int = 0):
        self.engine, self.window, self.limit = engine, window, limit
        self._asking = 0
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)
        self._thread.start()

    @property
    def full(self) -> bool:
        """Whether no more should be asked now."""
        return 0 < self.limit <= self._asking

    async def pieces(self, ask: Ask) -> AsyncGenerator[Piece, None]:
        """The parts of all ``n`` replies; if they are no longer waited for, the engine stops as well."""
        job, left = _Job(ask), ask.request.n
        self._jobs.put(job)
        self._asking += 1
        try:
            while left:
                part = await job.parts.get()
                if isinstance(part, Exception):
                    raise part
                left -= part.finish is not None
                yield part
        finally:
            job.gone, self._asking = True, self._asking - 1

    def close(self) -> None:
        """Stop after the chunk under way."""
        self._closed = True
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while not self._closed:
            jobs = self._together()
            self._answer(jobs)
            if self._closed:
                for job in [*jobs, *self._waiting()]:
                    job.put(UserError("the server is stopping"))

    def _answer(self, jobs: list[_Job]) -> None:
        def wanted(i: int) -> bool:
            return not (jobs[i].gone or self._closed)

        try:
            for i, piece in self.engine.spoken([job.ask for job in jobs], wanted):
                jobs[i].put(piece)
        except Exception as error:  # one batch has failed: whoever waits for it is told, and the next one is served
            for job in jobs:
                job.put(error)

    def _together(self) -> list[_Job]:
        """The jobs of the next batch: what came while the last one was at work, or in the window after the first."""
        first = self._jobs.get()
        jobs = [] if first is None else [first]
        end = time.monotonic() + self.window
        while not self._closed and sum(job.ask.request.n for job in jobs) < self.engine.rows:
            try:
                job = self._jobs.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                break
            jobs += [] if job is None else [job]
        return jobs + self._waiting()

    def _waiting(self) -> list[_Job]:
        found = []
        while not self._jobs.empty():
            job = self._jobs.get()
            found += [] if job is None else [job]
        return found
