"""Who may use a page: requests of this machine's browser, with the random token of the address.

The server listens on the loopback address alone. Other users of the machine do not know the token; pages of other
origins can neither read (no CORS headers) nor write: requests with a foreign ``Origin`` are refused, and so are those
with a foreign ``Host``, by which a page could otherwise reach the server under its own name (DNS rebinding).
"""

from __future__ import annotations

import hmac
import secrets
from typing import Any

from thespis.serving.auth import send_json

MAX_BODY_BYTES = 2**16
_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
_HEADERS = (
    (b"content-security-policy", b"default-src 'self'; img-src 'self' blob:; frame-ancestors 'none'; base-uri 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)


def make_token() -> str:
    """A random token for an address."""
    return secrets.token_urlsafe(18)


class LocalGuard:
    """ASGI middleware: serves paths below ``/TOKEN/`` to same-origin requests, and adds headers of safety."""

    def __init__(self, app: Any, token: str, port: int):
        self.app, self._prefix = app, f"/{token}/"
        self._hosts = {f"{name}:{port}" for name in _LOOPBACK_NAMES}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request, if it is allowed."""
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = message | {"headers": [*message["headers"], *_HEADERS]}
            await send(message)

        if (rejection := self._reject(scope)) is not None:
            status, message = rejection
            await send_json(status, {"error": message}, send_with_headers)
            return
        path = scope["path"][len(self._prefix) - 1 :]
        await self.app(scope | {"path": path, "raw_path": path.encode("utf-8", "replace")}, receive, send_with_headers)

    def _reject(self, scope: Any) -> tuple[int, str] | None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host, origin = headers.get(b"host", ""), headers.get(b"origin")
        if host not in self._hosts or (origin is not None and origin != f"http://{host}"):
            return 403, "this page is for the browser of this machine alone"
        start = scope["path"][: len(self._prefix)].encode("utf-8", "replace")
        if not hmac.compare_digest(start, self._prefix.encode()):
            return 404, "open the whole address that the command has printed"
        size = headers.get(b"content-length", "0")
        if scope["method"] == "POST":
            if headers.get(b"content-type", "").partition(";")[0].strip() != "application/json":
                return 415, "a body must be JSON"
            if not size.isascii() or not size.isdigit() or len(size) > 9 or int(size) > MAX_BODY_BYTES:
                return 413, f"a body must have at most {MAX_BODY_BYTES} bytes"
        return None
