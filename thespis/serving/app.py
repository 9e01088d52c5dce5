"""The server: ``/v1/chat/completions``, ``/v1/completions``, ``/v1/models`` and ``/health`` over one engine."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from thespis.core.errors import UserError, missing_extra
from thespis.language.engine import Answer, Piece, Refused, Usage, collected
from thespis.language.local import Ask
from thespis.serving.asked import Asked, chat_asked, text_asked
from thespis.serving.desk import Desk
from thespis.serving.door import Door, body_of, refusal
from thespis.serving.shown import Shown

_LOOK = 0.5  # seconds between two looks at whether a client still waits


_LATER = "1"  # seconds after which a client that found the queue full may ask again


class Server:
    """The handlers. ``name``: what clients call the model; ``length``: tokens of an answer if they do not say."""

    def __init__(self, desk: Desk, name: str, length: int):
        self.desk, self.name, self.length = desk, name, length

    async def health(self, request: Any) -> Any:
        """``GET /health``: it listens."""
        return _json({"status": "ok"})

    async def models(self, request: Any) -> Any:
        """``GET /v1/models``: the one there is."""
        return _json({"object": "list", "data": [self._model()]})

    async def model(self, request: Any) -> Any:
        """``GET /v1/models/NAME``."""
        self._known(request.path_params["name"])
        return _json(self._model())

    async def chat(self, request: Any) -> Any:
        """``POST /v1/chat/completions``."""
        return await self._completed(request, chat_asked(await body_of(request), self.length), chat=True)

    async def text(self, request: Any) -> Any:
        """``POST /v1/completions``."""
        encode = self.desk.engine.tokenizer.encode
        return await self._completed(request, text_asked(await body_of(request), self.length, encode), chat=False)

    async def _completed(self, request: Any, asked: Asked, *, chat: bool) -> Any:
        self._known(asked.model)
        if self.desk.full:
            raise Refused(f"{self.desk.limit} requests are waiting already: ask again later", code="queue_full")
        try:
            ask = self.desk.engine.ask(asked.talk, asked.request, asked.shorten)
        except Refused as error:
            raise error if chat else Refused(str(error), "prompt", error.code) from None
        except UserError as error:  # the chat template's own words
            raise Refused(str(error), "messages") from None
        vocabulary = self.desk.engine.model.shape.vocabulary
        if max(ask.ids) >= vocabulary:
            raise Refused(f"token ids are below {vocabulary}", "prompt")
        shown = Shown(asked, ask.ids, self.desk.engine.tokenizer, chat=chat)
        if asked.stream:
            return _streaming(self._events(request, ask, shown))
        answer = await self._whole(request, ask)
        return _json(shown.document(answer.replies, answer.usage or Usage()))

    async def _whole(self, request: Any, ask: Ask) -> Answer:
        """The answer; if the client leaves before it is complete, nobody goes on with it."""
        pieces = self.desk.pieces(ask)
        task = asyncio.create_task(_listed(pieces))
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=_LOOK)
                if not task.done() and await request.is_disconnected():
                    raise Refused("the client has left")
        finally:
            task.cancel()
        found = task.result()
        usage = Usage(len(ask.ids), sum(len(piece.tokens or ()) for piece in found))
        request.state.usage = usage
        return Answer(collected(found, ask.request.n).replies, usage)

    async def _events(self, request: Any, ask: Ask, shown: Shown) -> AsyncIterator[str]:
        said = 0
        try:
            async with contextlib.aclosing(self.desk.pieces(ask)) as pieces:
                async for piece in pieces:
                    said += len(piece.tokens or ())
                    request.state.usage = Usage(len(ask.ids), said)
                    yield _event(shown.event(piece))
            if shown.asked.usage:
                yield _event(shown.end(Usage(len(ask.ids), said)))
        except Exception as error:  # the status is sent already: what is left is to say it here
            yield _event(refusal(500, str(error) if isinstance(error, UserError) else "the engine failed"))
            return
        yield "data: [DONE]\n\n"

    def _known(self, name: str) -> None:
        if name != self.name:
            raise Refused(f"there is no model {name[:80]!r} here, only {self.name!r}", "model", "model_not_found")

    def _model(self) -> dict[str, Any]:
        return {"id": self.name, "object": "model", "created": 0, "owned_by": "thespis"}


def application(desk: Desk, name: str, *, key: str | None, length: int, log: Callable[[str], None]) -> Any:
    """The ASGI application; ``key``: what clients must show, ``log``: is given one line a request."""
    require_starlette()
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.routing import Route

    async def refused(request: Any, error: Any) -> Any:
        status = {"model_not_found": 404, "queue_full": 429}.get(error.code, 400)
        response = _json(refusal(status, str(error), error.field, error.code), status)
        if status == 429:
            response.headers["Retry-After"] = _LATER
        return response

    async def unknown(request: Any, error: Any) -> Any:
        return _json(
            refusal(error.status_code, f"{request.method} {request.url.path[:80]}: {error.detail}"), error.status_code
        )

    async def stopping(request: Any, error: Any) -> Any:
        return _json(refusal(503, str(error)), 503)

    async def failed(request: Any, error: Exception) -> Any:
        log(f"the engine failed: {type(error).__name__}: {error}")
        return _json(refusal(500, "the engine failed"), 500)

    server = Server(desk, name, length)
    routes = [
        Route("/health", server.health),
        Route("/v1/models", server.models),
        Route("/v1/models/{name:path}", server.model),
        Route("/v1/chat/completions", server.chat, methods=["POST"]),
        Route("/v1/completions", server.text, methods=["POST"]),
    ]
    told: Any = {Refused: refused, HTTPException: unknown, UserError: stopping, Exception: failed}
    return Door(Starlette(routes=routes, exception_handlers=told), key, log)


def require_starlette() -> None:
    """Raises ``UserError`` if what serves is not installed."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise missing_extra("starlette or uvicorn", "serve") from error


async def _listed(pieces: AsyncIterator[Piece]) -> list[Piece]:
    return [piece async for piece in pieces]


def _event(document: dict[str, Any]) -> str:
    return f"data: {json.dumps(document)}\n\n"


def _json(document: dict[str, Any], status: int = 200) -> Any:
    from starlette.responses import JSONResponse

    return JSONResponse(document, status)


def _streaming(events: AsyncIterator[str]) -> Any:
    from starlette.responses import StreamingResponse

    return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
