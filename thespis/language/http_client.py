"""HTTP client for chat completion services: retries with backoff, a concurrency limit, and keys kept out of errors."""

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
from thespis.language.openai_schema import Json


class EndpointError(UserError):
    """An endpoint that refused a request, or failed in every attempt. ``status``: the HTTP status, if any."""

    def __init__(self, text: str, status: int | None = None):
        super().__init__(text)
        self.status = status


class _TransientError(Exception):
    """A failure to be retried, no sooner than in ``retry_after`` seconds."""

    def __init__(self, text: str, status: int | None = None, retry_after: float = 0.0):
        super().__init__(text)
        self.status, self.retry_after = status, retry_after


@dataclasses.dataclass(frozen=True)
class EndpointConfig:
    """Address, limits and retry policy of an endpoint. Raises ``UserError`` for invalid settings."""

    url: str
    """The address up to ``/v1``, without secrets, which belong in the key."""
    key_variable: str | None = None
    """The environment variable with the API key; it is read for each call, and stored nowhere."""
    max_concurrency: int = 8
    """The maximum number of concurrent calls."""
    timeout: float = 120.0
    """Seconds for one attempt; of a stream, for each wait."""
    max_attempts: int = 6
    """The maximum number of attempts."""
    initial_backoff: float = 0.5
    """Seconds before the second attempt; doubled before each further one, times a random factor from 0.5 to 1.5."""
    max_backoff: float = 60.0
    """The maximum number of seconds to wait; if the service asks for more, the call fails."""

    def __post_init__(self):
        """Raise :class:`UserError` for invalid settings."""
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError("the endpoint's address must be like http://127.0.0.1:8000/v1")
        if parts.username or parts.password or parts.query:
            raise UserError("the endpoint's address must hold no secrets: name the key's variable with key_variable")
        if min(self.max_concurrency, self.max_attempts) < 1 or self.timeout <= 0 or self.initial_backoff < 0:
            raise UserError(
                "max_concurrency and max_attempts must be 1 or more, timeout above 0, initial_backoff 0 or more"
            )
        self.api_key()

    def api_key(self) -> str | None:
        """The API key, or ``None`` without ``key_variable``. Raises ``UserError`` if the variable does not hold one."""
        if self.key_variable is None:
            return None
        key = os.environ.get(self.key_variable, "").strip()
        if not key or not key.isascii() or not key.isprintable():
            raise UserError(f"the variable {self.key_variable} does not hold a key: set it to the endpoint's key")
        return key

    def redact(self, text: str) -> str:
        """A text without the API key."""
        key = self.api_key()
        return text if key is None else text.replace(key, "***")


class HttpClient:
    """HTTP client of one event loop; ``num_retries`` counts the attempts that were not the first of their call."""

    def __init__(self, config: EndpointConfig):
        httpx = require_httpx()
        self.config, self.num_retries = config, 0
        self._slots = asyncio.Semaphore(config.max_concurrency)
        self._url = config.url.rstrip("/") + "/chat/completions"
        limits = httpx.Limits(max_connections=config.max_concurrency, max_keepalive_connections=config.max_concurrency)
        self._client = httpx.AsyncClient(timeout=config.timeout, limits=limits, auth=self._authorize)
        self._fleeting = (httpx.TransportError, httpx.DecodingError, TimeoutError)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def post(self, body: Json) -> dict[str, Any]:
        """The response to a request body. Raises :class:`EndpointError`."""
        attempt = 0
        while True:
            attempt += 1
            try:
                async with self._slots:
                    with self._transient_errors():
                        async with asyncio.timeout(self.config.timeout):
                            return self._parse_response(await self._client.post(self._url, json=dict(body)))
            except _TransientError as error:
                await self._backoff(attempt, error)

    async def stream(self, body: Json) -> AsyncGenerator[dict[str, Any], None]:
        """The events of a streamed response. Raises :class:`EndpointError`, also if the stream breaks midway."""
        attempt, started = 0, False
        while True:
            attempt += 1
            try:
                async with self._slots:
                    with self._transient_errors():
                        async with self._client.stream("POST", self._url, json=dict(body)) as response:
                            if response.status_code != 200:
                                await response.aread()
                                self._parse_response(response)
                            async for line in response.aiter_lines():
                                data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
                                if data == "[DONE]":
                                    return
                                if data:
                                    event = self._parse_json(data)
                                    started = True
                                    yield event
                if started:  # the caller checks whether anything is missing
                    return
                raise _TransientError("it sent nothing")
            except _TransientError as error:
                if started:
                    raise self._endpoint_error(f"a stream of it was cut: {error}", error.status) from None
                await self._backoff(attempt, error)

    def _authorize(self, request: Any) -> Any:
        key = self.config.api_key()
        if key is not None:
            request.headers["Authorization"] = f"Bearer {key}"
        return request

    @contextlib.contextmanager
    def _transient_errors(self) -> Iterator[None]:
        """Turn errors that are worth a retry into :class:`_TransientError`."""
        try:
            yield
        except self._fleeting as error:
            timed_out = isinstance(error, TimeoutError) or "Timeout" in type(error).__name__
            text = f"no answer in {self.config.timeout:g} s" if timed_out else f"{type(error).__name__}: {error}"
            raise _TransientError(text) from None

    def _parse_response(self, response: Any) -> dict[str, Any]:
        status = response.status_code
        if status == 200:
            return self._parse_json(response.text)
        message = _error_text(response.text)
        text = f"{status} {response.reason_phrase}".strip() + (f": {message}" if message else "")
        if (status == 429 and "insufficient_quota" not in response.text) or status >= 500:
            raise _TransientError(text, status, _parse_retry_after(response.headers.get("Retry-After")))
        raise self._endpoint_error(text, status)

    def _parse_json(self, text: str) -> dict[str, Any]:
        try:
            document = json.loads(text)
        except ValueError:
            raise _TransientError("what it sent is not JSON") from None
        if not isinstance(document, dict):
            raise _TransientError("what it sent is no JSON object")
        if document.get("error"):
            raise self._endpoint_error(_error_text(text) or "an error without a message")
        return document

    async def _backoff(self, attempt: int, error: _TransientError) -> None:
        """Wait before the next attempt, or give up."""
        config = self.config
        jitter = 0.5 + secrets.randbelow(2**32) / 2**32
        seconds = max(min(config.initial_backoff * 2 ** (attempt - 1), config.max_backoff) * jitter, error.retry_after)
        if attempt >= config.max_attempts:
            raise self._endpoint_error(f"{error} (asked {attempt} times)", error.status)
        if error.retry_after > config.max_backoff:
            raise self._endpoint_error(f"{error} (it asks to wait for {error.retry_after:g} s)", error.status)
        self.num_retries += 1
        await asyncio.sleep(seconds)

    def _endpoint_error(self, text: str, status: int | None = None) -> EndpointError:
        return EndpointError(self.config.redact(f"{self._url} did not answer: {text}"), status)


def require_httpx() -> Any:
    """Import ``httpx``. Raises ``UserError`` if it is not installed."""
    try:
        import httpx
    except ImportError as error:
        raise missing_extra("httpx", "language") from error
    return httpx


def _error_text(text: str) -> str:
    """The message of an error response, in one line of at most 300 characters."""
    try:
        error = json.loads(text)["error"]
        text = error["message"] if isinstance(error, dict) else str(error)
    except (ValueError, KeyError, TypeError):
        pass
    return " ".join(str(text).split())[:300]


def _parse_retry_after(header: str | None) -> float:
    """Seconds of a ``Retry-After`` header: a number, or a date (RFC 9110, 10.2.3); 0 if it cannot be read."""
    if header is None:
        return 0.0
    with contextlib.suppress(ValueError):
        return max(0.0, float(header))
    with contextlib.suppress(ValueError, TypeError):
        until = email.utils.parsedate_to_datetime(header)
        return max(0.0, (until - datetime.datetime.now(datetime.UTC)).total_seconds())
    return 0.0
