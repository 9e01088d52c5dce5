"""Middleware for all requests: API key, size limit, log; and the JSON form of errors."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import time
from collections.abc import Callable
from typing import Any

from thespis.language.engine import RequestError

_ERROR_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
}
MAX_BODY_BYTES = 16 * 2**20
"""Maximum size of a request body in bytes."""
BODY_TIMEOUT = 60.0
"""Seconds within which a client must have sent the whole body of a request."""
_SURROGATE, _SURROGATE_ESCAPE = re.compile("[\ud800-\udfff]"), re.compile(r"\\u[dD][89a-fA-F]")


def error_json(status: int, message: str, field: str | None = None, code: str | None = None) -> dict[str, Any]:
    """JSON of an error as in the OpenAI API."""
    kind = _ERROR_TYPES.get(status, "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": field, "code": code}}


class AuthMiddleware:
    """ASGI middleware that checks the API key and logs one line per request, without its text."""

    def __init__(self, app: Any, api_key: str | None, log: Callable[[str], None]):
        self.app, self.log = app, log
        self._wanted = None if api_key is None else f"Bearer {api_key}".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one connection, if its API key is right."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, request_state = time.perf_counter(), [0], scope.setdefault("state", {})
        headers = dict(scope["headers"])

        async def send_and_record(message: Any) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
            await send(message)

        try:
            rejection = self._reject(scope["path"], headers)
            if rejection is None:
                await self.app(scope, receive, send_and_record)
            else:
                await send_json(*rejection, send_and_record)
        finally:
            milliseconds = 1000 * (time.perf_counter() - start)
            path = scope["path"] if scope["path"].isascii() and scope["path"].isprintable() else "?"
            usage_text = (
                f", {request_state['usage'].prompt_tokens} + {request_state['usage'].completion_tokens} tokens"
                if "usage" in request_state
                else ""
            )
            self.log(f"{scope['method']} {path[:80]} {status[0] or 'gone'} {milliseconds:.0f} ms{usage_text}")

    def _reject(self, path: str, headers: dict[bytes, bytes]) -> tuple[int, dict[str, Any]] | None:
        authorization = headers.get(b"authorization", b"")
        if self._wanted is not None and path != "/health" and not hmac.compare_digest(authorization, self._wanted):
            return 401, error_json(401, "the API key is missing or wrong", code="invalid_api_key")
        size = headers.get(b"content-length", b"0")
        if not size.isdigit() or len(size) > 20 or int(size) > MAX_BODY_BYTES:
            return 413, error_json(413, f"a body must have at most {MAX_BODY_BYTES} bytes")
        return None


async def read_body(request: Any) -> bytes:
    """Read the body of a request. Raises :class:`~thespis.language.engine.RequestError` if it is too large or slow."""
    from starlette.requests import ClientDisconnect

    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise RequestError(f"a body must have at most {MAX_BODY_BYTES} bytes")
    except TimeoutError:
        raise RequestError(f"the body did not arrive within {BODY_TIMEOUT:g} s", code="request_timeout") from None
    except ClientDisconnect:
        raise RequestError("the client has disconnected") from None
    return bytes(body)


def parse_json(body: bytes) -> Any:
    """Parse a body of JSON in UTF-8. Raises :class:`~thespis.language.engine.RequestError`.

    A lone surrogate, half of a character in UTF-16, is no text that could be tokenized: it is refused.
    """
    try:
        text = body.decode("utf-8-sig")
        document = json.loads(text)
        if _SURROGATE_ESCAPE.search(text) and _SURROGATE.search(json.dumps(document, ensure_ascii=False)):
            raise RequestError("a string has a lone surrogate (\\ud800 to \\udfff), which is no character")
        return document
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not JSON: {error}") from None


async def send_json(status: int, document: dict[str, Any], send: Any) -> None:
    """Send a JSON response."""
    body = json.dumps(document).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(b"www-authenticate", b"Bearer")] if status == 401 else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
