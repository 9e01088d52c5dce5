"""Calls to an HTTP service that may be busy, slow or broken: patient where waiting helps, and quiet about its key."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import email.utils
import json
import os
import secrets
from collections.abc import AsyncGenerator, Iterator
from typing import Any
from urllib.parse import urlsplit

from thespis.core.errors import UserError, missing_extra
from thespis.language.wire import Json


class EndpointError(UserError):
    """An endpoint that refused, or did not answer however often it was asked. ``status``: that of HTTP, if any."""

    def __init__(self, text: str, status: int | None = None):
        super().__init__(text)
        self.status = status


class _Passing(Exception):
    """A failure after which to ask again, no sooner than in ``after`` seconds."""

    def __init__(self, text: str, status: int | None = None, after: float = 0.0):
        super().__init__(text)
        self.status, self.after = status, after


@dataclasses.dataclass(frozen=True)
class Service:
    """Where to call, and how patiently. Raises ``UserError`` if it cannot be called at all."""

    url: str
    """Up to ``/v1``; without secrets, which belong into the key."""
    key_variable: str | None = None
    """The environment variable that holds the key: it is read for each call, and kept nowhere."""
    concurrency: int = 8
    """Calls under way at a time."""
    timeout: float = 120.0
    """Seconds for one attempt; of a stream, for each wait."""
    attempts: int = 6
    """How often to ask at most."""
    pause: float = 0.5
    """Seconds before the second attempt; twice as many before each further one, times 0.5 to 1.5 by chance."""
    longest_pause: float = 60.0
    """Seconds to wait at most; a service that asks for more is given up."""

    def __post_init__(self):
        """Refuse what cannot work."""
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError("the endpoint's address must be like http://127.0.0.1:8000/v1")
        if parts.username or parts.password or parts.query:
            raise UserError("the endpoint's address must hold no secrets: name the key's variable with key_variable")
        if min(self.concurrency, self.attempts) < 1 or self.timeout <= 0 or self.pause < 0:
            raise UserError("concurrency and attempts must be 1 or more, timeout above 0, pause 0 or more")
        self.key()

    def key(self) -> str | None:
        """The key, if there is to be one. Raises ``UserError`` if the variable does not hold one."""
        if self.key_variable is None:
            return None
        found = os.environ.get(self.key_variable, "").strip()
        if not found or not found.isascii() or not found.isprintable():
            raise UserError(f"the variable {self.key_variable} does not hold a key: set it to the endpoint's key")
        return found

    def hidden(self, text: str) -> str:
        """A text without the key."""
        key = self.key()
        return text if key is None else text.replace(key, "***")


class Caller:
    """Calls of one event loop; ``retries`` counts the attempts that were not the first of their call."""

    def __init__(self, service: Service):
        httpx = require_httpx()
        self.service, self.retries = service, 0
        self._slots = asyncio.Semaphore(service.concurrency)
        self._url = service.url.rstrip("/") + "/chat/completions"
        limits = httpx.Limits(max_connections=service.concurrency, max_keepalive_connections=service.concurrency)
        self._client = httpx.AsyncClient(timeout=service.timeout, limits=limits, auth=self._signed)
        self._fleeting = (httpx.TransportError, httpx.DecodingError, TimeoutError)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def document(self, body: Json) -> dict[str, Any]:
        """The response to a body. Raises :class:`EndpointError`."""
        attempt = 0
        while True:
            attempt += 1
            try:
                async with self._slots:
                    with self._told():
                        async with asyncio.timeout(self.service.timeout):
                            return self._checked(await self._client.post(self._url, json=dict(body)))
            except _Passing as error:
                await self._wait(attempt, error)

    async def events(self, body: Json) -> AsyncGenerator[dict[str, Any], None]:
        """The events of a stream. Raises :class:`EndpointError`, also if it is cut once it has begun."""
        attempt, begun = 0, False
        while True:
            attempt += 1
            try:
                async with self._slots:
                    with self._told():
                        async with self._client.stream("POST", self._url, json=dict(body)) as response:
                            if response.status_code != 200:
                                await response.aread()
                                self._checked(response)
                            async for line in response.aiter_lines():
                                data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
                                if data == "[DONE]":
                                    return
                                if data:
                                    event = self._event(data)
                                    begun = True
                                    yield event
                if begun:  # the caller sees whether anything is missing
                    return
                raise _Passing("it sent nothing")
            except _Passing as error:
                if begun:
                    raise self._given_up(f"a stream of it was cut: {error}", error.status) from None
                await self._wait(attempt, error)

    def _signed(self, request: Any) -> Any:
        key = self.service.key()
        if key is not None:
            request.headers["Authorization"] = f"Bearer {key}"
        return request

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """What may pass by itself, as :class:`_Passing`."""
        try:
            yield
        except self._fleeting as error:
            slow = isinstance(error, TimeoutError) or "Timeout" in type(error).__name__
            text = f"no answer in {self.service.timeout:g} s" if slow else f"{type(error).__name__}: {error}"
            raise _Passing(text) from None

    def _checked(self, response: Any) -> dict[str, Any]:
        status = response.status_code
        if status == 200:
            return self._event(response.text)
        said = _error_text(response.text)
        text = f"{status} {response.reason_phrase}".strip() + (f": {said}" if said else "")
        if (status == 429 and "insufficient_quota" not in response.text) or status >= 500:
            raise _Passing(text, status, _retry_after(response.headers.get("Retry-After")))
        raise self._given_up(text, status)

    def _event(self, text: str) -> dict[str, Any]:
        try:
            found = json.loads(text)
        except ValueError:
            raise _Passing("what it sent is not JSON") from None
        if not isinstance(found, dict):
            raise _Passing("what it sent is no JSON object")
        if found.get("error"):
            raise self._given_up(_error_text(text) or "an error without words")
        return found

    async def _wait(self, attempt: int, error: _Passing) -> None:
        """Wait before the next attempt, or give up."""
        service = self.service
        by_chance = 0.5 + secrets.randbelow(2**32) / 2**32
        seconds = max(min(service.pause * 2 ** (attempt - 1), service.longest_pause) * by_chance, error.after)
        if attempt >= service.attempts:
            raise self._given_up(f"{error} (asked {attempt} times)", error.status)
        if error.after > service.longest_pause:
            raise self._given_up(f"{error} (it asks to wait for {error.after:g} s)", error.status)
        self.retries += 1
        await asyncio.sleep(seconds)

    def _given_up(self, text: str, status: int | None = None) -> EndpointError:
        return EndpointError(self.service.hidden(f"{self._url} did not answer: {text}"), status)


def require_httpx() -> Any:
    """The module ``httpx``. Raises ``UserError`` if it is not installed."""
    try:
        import httpx
    except ImportError as error:
        raise missing_extra("httpx", "language") from error
    return httpx


def _error_text(text: str) -> str:
    """What an error response says, in one line of moderate length."""
    try:
        found = json.loads(text)["error"]
        text = found["message"] if isinstance(found, dict) else str(found)
    except (ValueError, KeyError, TypeError):
        pass
    return " ".join(str(text).split())[:300]


def _retry_after(header: str | None) -> float:
    """Seconds of the header ``Retry-After``: a number, or a date (RFC 9110, 10.2.3); 0 if it says nothing."""
    if header is None:
        return 0.0
    with contextlib.suppress(ValueError):
        return max(0.0, float(header))
    with contextlib.suppress(ValueError, TypeError):
        until = email.utils.parsedate_to_datetime(header)
        return max(0.0, (until - datetime.datetime.now(datetime.UTC)).total_seconds())
    return 0.0
