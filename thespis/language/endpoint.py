"""An engine elsewhere: any OpenAI-compatible endpoint, asked many things at a time, with an account of what was used.

All calls run on one event loop in a thread of the endpoint's own, so that plain code, notebooks and other event loops
may all use it, with one limit of calls under way for all of them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import json
import queue
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from thespis.language.calling import Caller, EndpointError, Service, require_httpx
from thespis.language.engine import PLAINLY, Answer, Piece, Request, Talk, Usage, collected
from thespis.language.replay import Replay
from thespis.language.wire import answer_of, body_of, document_of, pieces_of

_Result = TypeVar("_Result")
_STREAM = {"stream": True, "stream_options": {"include_usage": True}}


@dataclasses.dataclass(frozen=True)
class Prices:
    """Money for a million tokens read, and for a million said."""

    prompt: float
    said: float


@dataclasses.dataclass(frozen=True)
class Account:
    """What was used so far: answers paid for and answers from the disk, attempts that were repeated, tokens, money."""

    calls: int = 0
    replayed: int = 0
    retries: int = 0
    untold: int = 0
    """Calls whose response did not say how many tokens it took: they are missing in what follows."""
    prompt: int = 0
    said: int = 0
    cost: float | None = None
    """In the currency of the prices; ``None`` without them. A failed attempt that was charged for is not known here."""


class Endpoint:
    """An :class:`~thespis.language.engine.Engine` behind HTTP.

    ``cache``: a directory where answers are kept, by all of the request; equal requests of one call are told apart by
    their order, so that a program repeated gets the very same answers. ``prices``: what tokens cost. ``extra``: further
    fields of each request (``None`` leaves a field out), such as ``{"logprobs": True, "return_token_ids": True}``. The
    other settings are those of a :class:`~thespis.language.calling.Service`.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        cache: Path | str | None = None,
        prices: Prices | None = None,
        extra: Mapping[str, Any] | None = None,
        **service: Any,
    ):
        require_httpx()
        self.service, self.model, self.prices, self.extra = Service(url, **service), model, prices, dict(extra or {})
        self._replay = None if cache is None else Replay(cache)
        self._calls = self._replayed = self._untold = self._prompt = self._said = 0
        self._caller: Caller | None = None
        self._gate, self._closed = threading.Lock(), False  # nothing is submitted to a loop that is about to end
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="endpoint", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        """Where it is, and which model."""
        return f"Endpoint({self.service.url!r}, {self.model!r})"

    def __enter__(self) -> Endpoint:
        """Itself; it is closed at the end of the block."""
        return self

    def __exit__(self, *error: Any) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """End all calls and close all connections."""
        with self._gate:
            closed, self._closed = self._closed, True
        if not closed:
            asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    @property
    def account(self) -> Account:
        """What was used so far."""
        prices, retries = self.prices, 0 if self._caller is None else self._caller.retries
        cost = None if prices is None else (self._prompt * prices.prompt + self._said * prices.said) / 1_000_000
        return Account(self._calls, self._replayed, retries, self._untold, self._prompt, self._said, cost)

    def answers(self, talks: Sequence[Talk], request: Request = PLAINLY) -> list[Answer]:
        """An answer to each conversation, in their order. Raises :class:`EndpointError` if one of them has none."""
        future = self._submitted(self._all(talks, request))
        try:
            return self._result(future)
        finally:
            future.cancel()

    def stream(self, talk: Talk, request: Request = PLAINLY) -> Iterator[Piece]:
        """The answer to one conversation, in parts as they come."""
        parts: queue.SimpleQueue[Piece | None] = queue.SimpleQueue()
        future = self._submitted(self._pump(talk, request, parts.put))
        try:
            while (piece := parts.get()) is not None:
                yield piece
            self._result(future)
        finally:
            future.cancel()

    async def answers_soon(self, talks: Sequence[Talk], request: Request = PLAINLY) -> list[Answer]:
        """As :meth:`answers`, for code that awaits."""
        return await asyncio.wrap_future(self._submitted(self._all(talks, request)))

    async def stream_soon(self, talk: Talk, request: Request = PLAINLY) -> AsyncIterator[Piece]:
        """As :meth:`stream`, for code that awaits."""
        parts: asyncio.Queue[Piece | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        future = self._submitted(
            self._pump(talk, request, lambda piece: loop.call_soon_threadsafe(parts.put_nowait, piece))
        )
        try:
            while (piece := await parts.get()) is not None:
                yield piece
            await asyncio.wrap_future(future)
        finally:
            future.cancel()

    def _result(self, future: concurrent.futures.Future[_Result]) -> _Result:
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise EndpointError(f"{self!r} is closed") from None

    def _submitted(self, coroutine: Coroutine[Any, Any, _Result]) -> concurrent.futures.Future[_Result]:
        with self._gate:
            if self._closed:
                coroutine.close()
                raise EndpointError(f"{self!r} is closed")
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    async def _all(self, talks: Sequence[Talk], request: Request) -> list[Answer]:
        bodies = [body_of(talk, request, self.model, self.extra) for talk in talks]
        seen: Counter[str] = Counter()
        asked = []
        for body in bodies:
            text = json.dumps(body, sort_keys=True)
            asked.append(self._asked(body, seen[text]))
            seen[text] += 1
        tasks = [asyncio.ensure_future(self._one(each)) for each in asked]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(self, asked: Mapping[str, Any]) -> Answer:
        answer = self._replayed_answer(asked)
        if answer is None:
            document = await self._called().document(asked["body"])
            answer = self._read(document)
            self._booked(answer.usage)
            await self._keep(asked, document)
        return answer

    async def _pump(self, talk: Talk, request: Request, put: Callable[[Piece | None], Any]) -> None:
        """Put each part of an answer, and then ``None``."""
        try:
            asked = self._asked(body_of(talk, request, self.model, self.extra), 0)
            answer, pieces = self._replayed_answer(asked), list[Piece]()
            if answer is not None:
                for i, reply in enumerate(answer.replies):
                    put(Piece(i, reply.text, reply.tokens, reply.log_probs, reply.finish))
                put(Piece(usage=answer.usage))
                return
            async with contextlib.aclosing(self._called().events(asked["body"] | _STREAM)) as events:
                async for event in events:
                    for piece in self._read(event, pieces_of):
                        pieces.append(piece)
                        put(piece)
            answer = self._read(pieces, lambda pieces: collected(pieces, request.n))
            self._booked(answer.usage)
            await self._keep(asked, document_of(answer))
        finally:
            put(None)

    def _called(self) -> Caller:
        if self._caller is None:
            self._caller = Caller(self.service)
        return self._caller

    async def _shut(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()
        if self._caller is not None:
            await self._caller.close()

    def _asked(self, body: Mapping[str, Any], repeat: int) -> dict[str, Any]:
        """All by which an answer is kept: where, what, and the how manyth time in one call."""
        return {"url": self.service.url, "body": dict(body), "repeat": repeat}

    def _replayed_answer(self, asked: Mapping[str, Any]) -> Answer | None:
        document = None if self._replay is None else self._replay.found(asked)
        if document is None:
            return None
        self._replayed += 1
        return answer_of(document)

    async def _keep(self, asked: Mapping[str, Any], document: Mapping[str, Any]) -> None:
        if self._replay is not None:
            document = json.loads(self.service.hidden(json.dumps(document)))
            await asyncio.to_thread(self._replay.keep, asked, document)

    def _booked(self, usage: Usage | None) -> None:
        self._calls += 1
        self._untold += usage is None
        self._prompt += 0 if usage is None else usage.prompt
        self._said += 0 if usage is None else usage.said

    def _read(self, what: Any, read: Callable[[Any], Any] = answer_of) -> Any:
        try:
            found = read(what)
            return list(found) if isinstance(found, Iterator) else found
        except (ValueError, IndexError) as error:
            text = f"{self.service.url} did not answer: {error}"
            raise EndpointError(self.service.hidden(text)) from None
