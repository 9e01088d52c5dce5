"""ASGI application: ``/v1/chat/completions``, ``/v1/completions``, ``/v1/models`` and ``/health`` over one engine."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from thespis.core.errors import UserError, missing_extra
from thespis.language.engine import CompletionChoice, CompletionChunk, RequestError, Usage, join_chunks
from thespis.language.local_engine import TokenizedPrompt
from thespis.serving.auth import AuthMiddleware, error_json, parse_json, read_body
from thespis.serving.batcher import RequestBatcher
from thespis.serving.request import CompletionRequest, parse_chat_request, parse_text_request
from thespis.serving.response import ResponseFormatter

_DISCONNECT_INTERVAL = 0.5  # seconds between two checks for a disconnected client


_RETRY_AFTER = "1"  # seconds, sent to clients when the queue is full


class CompletionHandlers:
    """Request handlers. ``model_name``: the name in the API; ``max_tokens``: limit where a request has none."""

    def __init__(self, batcher: RequestBatcher, model_name: str, max_tokens: int):
        self.batcher, self.model_name, self.max_tokens = batcher, model_name, max_tokens

    async def health(self, request: Any) -> Any:
        """``GET /health``: status of the server."""
        return _json_response({"status": "ok"})

    async def models(self, request: Any) -> Any:
        """``GET /v1/models``: a list with the served model."""
        return _json_response({"object": "list", "data": [self._model_json()]})

    async def model(self, request: Any) -> Any:
        """``GET /v1/models/NAME``: the served model, or an error for another name."""
        self._check_model_name(request.path_params["name"])
        return _json_response(self._model_json())

    async def chat_completions(self, request: Any) -> Any:
        """``POST /v1/chat/completions``: a chat completion, whole or streamed."""
        return await self._respond(request, parse_chat_request, chat=True)

    async def completions(self, request: Any) -> Any:
        """``POST /v1/completions``: text completions, whole or streamed."""
        return await self._respond(request, parse_text_request, chat=False)

    async def _respond(self, request: Any, parse: Callable[[Any, int, int], CompletionRequest], *, chat: bool) -> Any:
        body = await read_body(request)
        self._check_queue()
        completion_request, prompts = await asyncio.to_thread(self._prepare, body, parse, chat)
        self._check_queue()
        formatter = ResponseFormatter(
            completion_request, [prompt.tokens for prompt in prompts], self.batcher.engine.tokenizer, is_chat=chat
        )
        if completion_request.stream:
            return _sse_response(self._stream_events(request, prompts, formatter))
        choices, usage = await self._complete(request, prompts)
        return _json_response(formatter.completion_json(choices, usage))

    def _prepare(
        self, body: bytes, parse: Callable[[Any, int, int], CompletionRequest], chat: bool
    ) -> tuple[CompletionRequest, list[TokenizedPrompt]]:
        """Parse and tokenize a request, in a thread: other clients are served meanwhile."""
        engine = self.batcher.engine
        request = parse(parse_json(body), self.max_tokens, engine.max_length)
        self._check_model_name(request.model)
        prompts = []
        for prompt in request.prompts:
            try:
                tokenized = engine.tokenize_prompt(prompt, request.config, request.clip_max_tokens)
            except RequestError as error:
                raise error if chat else RequestError(str(error), "prompt", error.code) from None
            except UserError as error:  # raised by the chat template
                raise RequestError(str(error), "messages") from None
            if max(tokenized.tokens) >= engine.model.config.vocab_size:
                raise RequestError(f"tokens must be below {engine.model.config.vocab_size}", "prompt")
            prompts.append(dataclasses.replace(tokenized, num_top_tokens=request.num_top_tokens))
        return request, prompts

    def _check_queue(self) -> None:
        if self.batcher.is_full:
            raise RequestError(
                f"{self.batcher.max_pending} requests are already waiting: retry later", code="queue_full"
            )

    async def _complete(self, request: Any, prompts: list[TokenizedPrompt]) -> tuple[list[CompletionChoice], Usage]:
        """The whole completions of all prompts; generation is cancelled if the client disconnects."""
        task = asyncio.create_task(_collect_chunks(self.batcher.stream(prompts), len(prompts)))
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=_DISCONNECT_INTERVAL)
                if not task.done() and await request.is_disconnected():
                    raise RequestError("the client has disconnected")
        finally:
            task.cancel()
        chunks = task.result()
        choices = [
            choice
            for prompt, prompt_chunks in zip(prompts, chunks, strict=True)
            for choice in join_chunks(prompt_chunks, prompt.config.n).choices
        ]
        usage = Usage(sum(len(prompt.tokens) for prompt in prompts), sum(len(c.tokens or ()) for c in choices))
        request.state.usage = usage
        return choices, usage

    async def _stream_events(
        self, request: Any, prompts: list[TokenizedPrompt], formatter: ResponseFormatter
    ) -> AsyncIterator[str]:
        num_prompt_tokens, num_tokens = sum(len(prompt.tokens) for prompt in prompts), 0
        try:
            async with contextlib.aclosing(self.batcher.stream(prompts)) as stream:
                async for i, chunk in stream:
                    num_tokens += len(chunk.tokens or ())
                    request.state.usage = Usage(num_prompt_tokens, num_tokens)
                    yield _sse_event(formatter.chunk_json(i, chunk))
            if formatter.request.include_usage:
                yield _sse_event(formatter.usage_chunk_json(Usage(num_prompt_tokens, num_tokens)))
        except Exception as error:  # the status has already been sent
            yield _sse_event(error_json(500, str(error) if isinstance(error, UserError) else "the engine failed"))
            return
        yield "data: [DONE]\n\n"

    def _check_model_name(self, name: str) -> None:
        if name != self.model_name:
            raise RequestError(
                f"there is no model {name[:80]!r}: the server has only {self.model_name!r}", "model", "model_not_found"
            )

    def _model_json(self) -> dict[str, Any]:
        return {"id": self.model_name, "object": "model", "created": 0, "owned_by": "thespis"}


def create_app(
    batcher: RequestBatcher, model_name: str, *, api_key: str | None, max_tokens: int, log: Callable[[str], None]
) -> Any:
    """The ASGI application; ``api_key``: required from clients, ``log``: called with one line per request."""
    require_starlette()
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.routing import Route

    async def on_request_error(request: Any, error: Any) -> Any:
        status = {"model_not_found": 404, "request_timeout": 408, "queue_full": 429}.get(error.code, 400)
        response = _json_response(error_json(status, str(error), error.field, error.code), status)
        if status == 429:
            response.headers["Retry-After"] = _RETRY_AFTER
        return response

    async def on_http_error(request: Any, error: Any) -> Any:
        return _json_response(
            error_json(error.status_code, f"{request.method} {request.scope['path'][:80]}: {error.detail}"),
            error.status_code,
        )

    async def on_shutdown(request: Any, error: Any) -> Any:
        return _json_response(error_json(503, str(error)), 503)

    async def on_engine_error(request: Any, error: Exception) -> Any:
        log(f"the engine failed: {type(error).__name__}: {error}")
        return _json_response(error_json(500, "the engine failed"), 500)

    server = CompletionHandlers(batcher, model_name, max_tokens)
    routes = [
        Route("/health", server.health),
        Route("/v1/models", server.models),
        Route("/v1/models/{name:path}", server.model),
        Route("/v1/chat/completions", server.chat_completions, methods=["POST"]),
        Route("/v1/completions", server.completions, methods=["POST"]),
    ]
    handlers: Any = {
        RequestError: on_request_error,
        HTTPException: on_http_error,
        UserError: on_shutdown,
        Exception: on_engine_error,
    }
    return AuthMiddleware(Starlette(routes=routes, exception_handlers=handlers), api_key, log)


def require_starlette() -> None:
    """Raise ``UserError`` if starlette or uvicorn is not installed."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise missing_extra("starlette or uvicorn", "serve") from error


async def _collect_chunks(
    chunks: AsyncIterator[tuple[int, CompletionChunk]], num_prompts: int
) -> list[list[CompletionChunk]]:
    """The chunks of each prompt."""
    collected: list[list[CompletionChunk]] = [[] for _ in range(num_prompts)]
    async for i, chunk in chunks:
        collected[i].append(chunk)
    return collected


def _sse_event(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body)}\n\n"


def _json_response(body: dict[str, Any], status: int = 200) -> Any:
    from starlette.responses import JSONResponse

    return JSONResponse(body, status)


def _sse_response(events: AsyncIterator[str]) -> Any:
    from starlette.responses import StreamingResponse

    return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
