"""What every request passes: the key, the size, the log; and the form of all that is refused."""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Callable
from typing import Any

from thespis.language.engine import Refused

_KINDS = {
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
}
LARGEST = 16 * 2**20
"""Bytes of a body at most."""


def refusal(status: int, message: str, field: str | None = None, code: str | None = None) -> dict[str, Any]:
    """The JSON of an error, as OpenAI's clients expect it."""
    kind = _KINDS.get(status, "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": field, "code": code}}


class Door:
    """ASGI: lets in who has the key, and writes one line for each request, with no text of it in it."""

    def __init__(self, inner: Any, key: str | None, log: Callable[[str], None]):
        self.inner, self.log = inner, log
        self._wanted = None if key is None else f"Bearer {key}".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self.inner(scope, receive, send)
            return
        begin, status, told = time.perf_counter(), [0], scope.setdefault("state", {})
        headers = dict(scope["headers"])

        async def sent(message: Any) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
            await send(message)

        try:
            refused = self._refused(scope["path"], headers)
            if refused is None:
                await self.inner(scope, receive, sent)
            else:
                await answered(*refused, sent)
        finally:
            milliseconds = 1000 * (time.perf_counter() - begin)
            path = scope["path"] if scope["path"].isascii() and scope["path"].isprintable() else "?"
            more = f", {told['usage'].prompt} + {told['usage'].said} tokens" if "usage" in told else ""
            self.log(f"{scope['method']} {path[:80]} {status[0] or 'gone'} {milliseconds:.0f} ms{more}")

    def _refused(self, path: str, headers: dict[bytes, bytes]) -> tuple[int, dict[str, Any]] | None:
        given = headers.get(b"authorization", b"")
        if self._wanted is not None and path != "/health" and not hmac.compare_digest(given, self._wanted):
            return 401, refusal(401, "the key is missing or wrong", code="invalid_api_key")
        size = headers.get(b"content-length", b"0")
        if not size.isdigit() or int(size) > LARGEST:
            return 413, refusal(413, f"a body has {LARGEST} bytes at most")
        return None


async def body_of(request: Any) -> Any:
    """The JSON of a request. Raises :class:`~thespis.language.engine.Refused`."""
    found = bytearray()
    async for part in request.stream():
        found += part
        if len(found) > LARGEST:
            raise Refused(f"a body has {LARGEST} bytes at most")
    try:
        return json.loads(found)
    except (ValueError, RecursionError) as error:
        raise Refused(f"the body is not JSON: {error}") from None


async def answered(status: int, document: dict[str, Any], send: Any) -> None:
    """Send a response of JSON."""
    body = json.dumps(document).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(b"www-authenticate", b"Bearer")] if status == 401 else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
