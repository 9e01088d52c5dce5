"""Inference engine for any OpenAI-compatible endpoint: concurrent requests, a response cache, and usage statistics.

All calls run on one event loop in a thread of the endpoint's own, so that plain code, notebooks and other event loops
can all use it, with one common limit of concurrent calls.
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

from thespis.language.engine import (
    DEFAULT_GENERATION,
    Completion,
    CompletionChunk,
    GenerationConfig,
    Prompt,
    Usage,
    join_chunks,
)
from thespis.language.http_client import EndpointConfig, EndpointError, HttpClient, require_httpx
from thespis.language.openai_schema import completion_json, parse_chunks, parse_completion, request_body
from thespis.language.response_cache import ResponseCache

_Result = TypeVar("_Result")
_STREAM_OPTIONS = {"stream": True, "stream_options": {"include_usage": True}}


@dataclasses.dataclass(frozen=True)
class TokenPrices:
    """Prices of a million prompt tokens, and of a million completion tokens."""

    prompt: float
    completion: float


@dataclasses.dataclass(frozen=True)
class EndpointUsage:
    """Usage so far: paid calls, cached responses, retried attempts, tokens and cost."""

    num_calls: int = 0
    num_cached: int = 0
    num_retries: int = 0
    num_unreported: int = 0
    """Calls whose response did not report its tokens: they are missing in the following fields."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    """In the currency of the prices; ``None`` without them. Charges for failed attempts are not included."""


class EndpointEngine:
    """An :class:`~thespis.language.engine.Engine` behind HTTP.

    ``cache``: a directory where responses are stored, addressed by the complete request; equal requests of one call are
    distinguished by their order, so that a program that is run again gets exactly the same responses. ``prices``: what
    tokens cost. ``extra_body``: further fields of each request (``None`` removes a field), such as
    ``{"logprobs": True, "return_token_ids": True}``. The other settings are those of
    :class:`~thespis.language.http_client.EndpointConfig`.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        cache: Path | str | None = None,
        prices: TokenPrices | None = None,
        extra_body: Mapping[str, Any] | None = None,
        **config_fields: Any,
    ):
        require_httpx()
        self.config, self.model, self.prices, self.extra_body = (
            EndpointConfig(url, **config_fields),
            model,
            prices,
            dict(extra_body or {}),
        )
        self._replay = None if cache is None else ResponseCache(cache)
        self._calls = self._replayed = self._untold = self._prompt = self._said = 0
        self._caller: HttpClient | None = None
        self._gate, self._closed = threading.Lock(), False  # nothing may be submitted to a loop that is about to stop
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="endpoint", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        """The address and the model."""
        return f"EndpointEngine({self.config.url!r}, {self.model!r})"

    def __enter__(self) -> EndpointEngine:
        """Itself; it is closed at the end of the block."""
        return self

    def __exit__(self, *error: Any) -> None:
        """Close the connections of the endpoint."""
        self.close()

    def close(self) -> None:
        """Cancel all calls and close all connections."""
        with self._gate:
            was_closed, self._closed = self._closed, True
        if not was_closed:
            asyncio.run_coroutine_threadsafe(self._shutdown(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    @property
    def usage(self) -> EndpointUsage:
        """Tokens and requests that the endpoint has used so far."""
        prices, retries = self.prices, 0 if self._caller is None else self._caller.num_retries
        cost = None if prices is None else (self._prompt * prices.prompt + self._said * prices.completion) / 1_000_000
        return EndpointUsage(self._calls, self._replayed, retries, self._untold, self._prompt, self._said, cost)

    def generate(self, prompts: Sequence[Prompt], config: GenerationConfig = DEFAULT_GENERATION) -> list[Completion]:
        """A completion for each prompt, in order. Raises :class:`EndpointError` if one of them fails."""
        future = self._submit(self._generate_all(prompts, config))
        try:
            return self._await_result(future)
        finally:
            future.cancel()

    def stream(self, prompt: Prompt, config: GenerationConfig = DEFAULT_GENERATION) -> Iterator[CompletionChunk]:
        """The completion of one prompt, in chunks as they come."""
        chunks: queue.SimpleQueue[CompletionChunk | None] = queue.SimpleQueue()
        future = self._submit(self._stream_to(prompt, config, chunks.put))
        try:
            while (chunk := chunks.get()) is not None:
                yield chunk
            self._await_result(future)
        finally:
            future.cancel()

    async def generate_async(
        self, prompts: Sequence[Prompt], config: GenerationConfig = DEFAULT_GENERATION
    ) -> list[Completion]:
        """As :meth:`generate`, for asynchronous code."""
        return await asyncio.wrap_future(self._submit(self._generate_all(prompts, config)))

    async def stream_async(
        self, prompt: Prompt, config: GenerationConfig = DEFAULT_GENERATION
    ) -> AsyncIterator[CompletionChunk]:
        """As :meth:`stream`, for asynchronous code."""
        chunks: asyncio.Queue[CompletionChunk | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        future = self._submit(
            self._stream_to(prompt, config, lambda chunk: loop.call_soon_threadsafe(chunks.put_nowait, chunk))
        )
        try:
            while (chunk := await chunks.get()) is not None:
                yield chunk
            await asyncio.wrap_future(future)
        finally:
            future.cancel()

    def _await_result(self, future: concurrent.futures.Future[_Result]) -> _Result:
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise EndpointError(f"{self!r} is closed") from None

    def _submit(self, coroutine: Coroutine[Any, Any, _Result]) -> concurrent.futures.Future[_Result]:
        with self._gate:
            if self._closed:
                coroutine.close()
                raise EndpointError(f"{self!r} is closed")
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    async def _generate_all(self, prompts: Sequence[Prompt], config: GenerationConfig) -> list[Completion]:
        bodies = [request_body(prompt, config, self.model, self.extra_body) for prompt in prompts]
        counts: Counter[str] = Counter()
        cache_keys = []
        for body in bodies:
            text = json.dumps(body, sort_keys=True)
            cache_keys.append(self._cache_key(body, counts[text]))
            counts[text] += 1
        tasks = [asyncio.ensure_future(self._generate_one(cache_key)) for cache_key in cache_keys]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _generate_one(self, cache_key: Mapping[str, Any]) -> Completion:
        completion = self._cached_completion(cache_key)
        if completion is None:
            document = await self._get_client().post(cache_key["body"])
            completion = self._parse(document)
            self._count_usage(completion.usage)
            await self._cache_response(cache_key, document)
        return completion

    async def _stream_to(
        self, prompt: Prompt, config: GenerationConfig, put: Callable[[CompletionChunk | None], Any]
    ) -> None:
        """Put each chunk of a completion, and then ``None``."""
        try:
            cache_key = self._cache_key(request_body(prompt, config, self.model, self.extra_body), 0)
            completion, chunks = self._cached_completion(cache_key), list[CompletionChunk]()
            if completion is not None:
                for i, choice in enumerate(completion.choices):
                    put(CompletionChunk(i, choice.text, choice.tokens, choice.log_probs, choice.finish_reason))
                put(CompletionChunk(usage=completion.usage))
                return
            async with contextlib.aclosing(self._get_client().stream(cache_key["body"] | _STREAM_OPTIONS)) as events:
                async for event in events:
                    for chunk in self._parse(event, parse_chunks):
                        chunks.append(chunk)
                        put(chunk)
            completion = self._parse(chunks, lambda chunks: join_chunks(chunks, config.n))
            self._count_usage(completion.usage)
            await self._cache_response(cache_key, completion_json(completion))
        finally:
            put(None)

    def _get_client(self) -> HttpClient:
        if self._caller is None:
            self._caller = HttpClient(self.config)
        return self._caller

    async def _shutdown(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()
        if self._caller is not None:
            await self._caller.close()

    def _cache_key(self, body: Mapping[str, Any], repeat: int) -> dict[str, Any]:
        """The key of a cached response: address, request, and how many equal requests came before it in one call."""
        return {"url": self.config.url, "body": dict(body), "repeat": repeat}

    def _cached_completion(self, cache_key: Mapping[str, Any]) -> Completion | None:
        document = None if self._replay is None else self._replay.get(cache_key)
        if document is None:
            return None
        self._replayed += 1
        return parse_completion(document)

    async def _cache_response(self, cache_key: Mapping[str, Any], response: Mapping[str, Any]) -> None:
        if self._replay is not None:
            response = json.loads(self.config.redact(json.dumps(response)))
            await asyncio.to_thread(self._replay.put, cache_key, response)

    def _count_usage(self, usage: Usage | None) -> None:
        self._calls += 1
        self._untold += usage is None
        self._prompt += 0 if usage is None else usage.prompt_tokens
        self._said += 0 if usage is None else usage.completion_tokens

    def _parse(self, body: Any, read: Callable[[Any], Any] = parse_completion) -> Any:
        try:
            result = read(body)
            return list(result) if isinstance(result, Iterator) else result
        except (ValueError, IndexError) as error:
            text = f"{self.config.url} did not answer: {error}"
            raise EndpointError(self.config.redact(text)) from None
