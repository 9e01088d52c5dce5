"""Header timeout: a connection on which no complete request head arrives in time is closed.

uvicorn only limits the time between two requests, and only until the first byte of the next one. A client that opens
connections and never sends a request, or sends its head byte by byte, could otherwise hold them open for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

_Address = tuple[Any, ...]


class HeaderTimeout:
    """Timers of all connections. A timer runs while a connection has no request that is being answered.

    ``seconds``: time from the beginning of a connection, or from the last response, to the end of the next head.
    """

    def __init__(self, seconds: float):
        self.seconds = seconds
        self._connections: dict[_Address, _TimedConnection] = {}

    def wrap_app(self, app: Any) -> Any:
        """An ASGI application that stops the timer of a connection during its requests."""

        async def timed_app(scope: Any, receive: Any, send: Any) -> None:
            connection = self._connections.get(tuple(scope.get("client") or ())[:2])
            if connection is not None:
                connection.begin_request()
            try:
                await app(scope, receive, send)
            finally:
                if connection is not None:
                    connection.end_request()

        return timed_app

    def wrap_protocol(self, protocol_class: Callable[..., Any]) -> Callable[..., asyncio.Protocol]:
        """A factory of protocols that start the timer of each connection of uvicorn's ``protocol_class``."""
        return lambda **kwargs: _TimedConnection(protocol_class(**kwargs), self._connections, self.seconds)


class _TimedConnection(asyncio.Protocol):
    """A connection: passes everything on to uvicorn's protocol, and closes the transport when the timer ends."""

    def __init__(self, protocol: Any, connections: dict[_Address, _TimedConnection], seconds: float):
        self._protocol, self._connections, self._seconds = protocol, connections, seconds
        self._num_requests, self._address = 0, ()
        self._timer: asyncio.TimerHandle | None = None
        self._transport: Any = None

    def begin_request(self) -> None:
        """Stop the timer: the head of a request has arrived."""
        self._num_requests += 1
        self._stop_timer()

    def end_request(self) -> None:
        """Start the timer again, unless another request has arrived on the same connection."""
        self._num_requests -= 1
        if not self._num_requests and self._transport is not None:
            self._start_timer()

    def connection_made(self, transport: Any) -> None:
        """Register a new connection and start its timer."""
        self._transport = transport
        self._address = tuple((transport.get_extra_info("peername") or ())[:2])
        self._connections[self._address] = self
        self._protocol.connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer of a connection that has ended and forget it."""
        self._stop_timer()
        self._transport = None
        if self._connections.get(self._address) is self:
            del self._connections[self._address]
        self._protocol.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass received data on to uvicorn's protocol."""
        self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass the end of the data on."""
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        """Pass the request to pause on."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Pass the request to resume on."""
        self._protocol.resume_writing()

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
