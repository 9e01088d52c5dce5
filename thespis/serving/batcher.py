"""Request batching: requests that arrive together are generated in one batch, by one engine thread."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import AsyncGenerator, Sequence

from thespis.core.errors import UserError
from thespis.language.engine import CompletionChunk
from thespis.language.local_engine import LocalEngine, TokenizedPrompt


class _PendingRequest:
    """One prompt of a request, and the event loop that waits for its chunks. ``cancelled``: no client waits any more.

    ``chunks``: the queue of the whole request, with the index of the prompt and a chunk of its completion.
    """

    def __init__(self, prompt: TokenizedPrompt, index: int, chunks: asyncio.Queue):
        self.prompt, self.cancelled = prompt, False
        self._index, self._chunks, self._loop = index, chunks, asyncio.get_running_loop()

    def put(self, chunk: CompletionChunk | Exception) -> None:
        """Pass a chunk to the waiting client; called by the engine thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._chunks.put_nowait, (self._index, chunk))


class RequestBatcher:
    """Batches concurrent requests for one engine.

    ``batch_window``: seconds for which a first request waits for others; ``max_pending``: limit of unfinished prompts
    (0: no limit).
    """

    def __init__(self, engine: LocalEngine, batch_window: float, max_pending: int = 0):
        self.engine, self.batch_window, self.max_pending = engine, batch_window, max_pending
        self._asking = 0
        self._jobs: queue.SimpleQueue[_PendingRequest | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def is_full(self) -> bool:
        """Whether the limit of unfinished prompts is reached."""
        return 0 < self.max_pending <= self._asking

    async def stream(self, prompts: Sequence[TokenizedPrompt]) -> AsyncGenerator[tuple[int, CompletionChunk], None]:
        """Chunks of all ``n`` choices of each prompt, with its index; the engine stops if the consumer does."""
        chunks: asyncio.Queue[tuple[int, CompletionChunk | Exception]] = asyncio.Queue()
        requests = [_PendingRequest(prompt, i, chunks) for i, prompt in enumerate(prompts)]
        num_unfinished = sum(prompt.config.n for prompt in prompts)
        for request in requests:
            self._jobs.put(request)
        self._asking += len(requests)
        try:
            while num_unfinished:
                i, chunk = await chunks.get()
                if isinstance(chunk, Exception):
                    raise chunk
                num_unfinished -= chunk.finish_reason is not None
                yield i, chunk
        finally:
            self._asking -= len(requests)
            for request in requests:
                request.cancelled = True

    def close(self) -> None:
        """Stop the engine thread after the current chunk."""
        self._closed = True
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while not self._closed:
            requests = self._next_batch()
            self._process_batch(requests)
            if self._closed:
                for request in [*requests, *self._drain_queue()]:
                    request.put(UserError("the server is stopping"))

    def _process_batch(self, requests: list[_PendingRequest]) -> None:
        def is_wanted(i: int) -> bool:
            return not (requests[i].cancelled or self._closed)

        try:
            for i, chunk in self.engine.stream_batch([request.prompt for request in requests], is_wanted):
                requests[i].put(chunk)
        except Exception as error:  # the batch has failed: its clients get the error, and the next batch is served
            for request in requests:
                request.put(error)

    def _next_batch(self) -> list[_PendingRequest]:
        """Requests of the next batch: those that arrived during the last one, or in the window after the first."""
        first = self._jobs.get()
        requests = [] if first is None else [first]
        end = time.monotonic() + self.batch_window
        while not self._closed and sum(request.prompt.config.n for request in requests) < self.engine.batch_size:
            try:
                request = self._jobs.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                break
            requests += [] if request is None else [request]
        return requests + self._drain_queue()

    def _drain_queue(self) -> list[_PendingRequest]:
        requests = []
        while not self._jobs.empty():
            request = self._jobs.get()
            requests += [] if request is None else [request]
        return requests
