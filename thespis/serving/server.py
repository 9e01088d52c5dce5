"""Running the HTTP server, in the foreground or in a thread."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

from thespis.core.errors import UserError
from thespis.language.local_engine import LocalEngine
from thespis.serving.app import create_app, require_starlette
from thespis.serving.batcher import RequestBatcher
from thespis.serving.header_timeout import HeaderTimeout

_SHUTDOWN_SECONDS = 5  # seconds for open connections to end by themselves
HEADER_TIMEOUT = 15.0
"""Seconds within which a client must have sent the head of a request."""


def read_api_key(variable: str | None) -> str | None:
    """The API key in an environment variable. Raises ``UserError`` if it is empty."""
    if variable is None:
        return None
    api_key = os.environ.get(variable, "").strip()
    if not api_key:
        raise UserError(f"the variable {variable} is empty: set it to the API key that clients must send")
    return api_key


def open_socket(host: str, port: int) -> socket.socket:
    """A listening socket. Raises ``UserError`` if the port is taken or the host is not an address of this machine."""
    if not 0 <= port < 2**16:
        raise UserError(f"--port {port} is out of range: ports are 0 to {2**16 - 1}")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise UserError(f"cannot listen at {host}:{port}: {error}; choose another --host or --port") from None


def serve(
    batcher: RequestBatcher,
    listener: socket.socket,
    model_name: str,
    *,
    api_key: str | None,
    max_tokens: int,
    log: Callable[[str], None],
) -> None:
    """Serve until SIGINT or SIGTERM; open connections then have some seconds to end."""
    app = create_app(batcher, model_name, api_key=api_key, max_tokens=max_tokens, log=log)
    try:
        run_until_interrupted(make_server(app), listener)
    finally:
        batcher.close()


@contextlib.contextmanager
def background_server(
    engine: LocalEngine,
    model_name: str = "model",
    *,
    api_key: str | None = None,
    max_tokens: int = 256,
    batch_window: float = 0.005,
    max_pending: int = 0,
    port: int = 0,
    header_timeout: float = HEADER_TIMEOUT,
    log: Callable[[str], None] = lambda line: None,
) -> Iterator[str]:
    """Serve at 127.0.0.1 in a thread during a ``with`` block; yields the base URL, which ends in ``/v1``."""
    batcher, listener = RequestBatcher(engine, batch_window, max_pending), open_socket("127.0.0.1", port)
    app = create_app(batcher, model_name, api_key=api_key, max_tokens=max_tokens, log=log)
    try:
        with running_in_thread(make_server(app, header_timeout), listener):
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        batcher.close()


def run_until_interrupted(server: Any, listener: socket.socket) -> None:
    """Run a server until SIGINT or SIGTERM, with a graceful shutdown."""

    def interrupt(*signal: Any) -> None:
        raise KeyboardInterrupt

    previous_handler = signal.signal(signal.SIGTERM, interrupt)
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:  # raised again by uvicorn after its shutdown
        pass
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


@contextlib.contextmanager
def running_in_thread(server: Any, listener: socket.socket) -> Iterator[None]:
    """Run a server in a thread during a ``with`` block; then close its socket."""
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="server", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def make_server(app: Any, header_timeout: float = HEADER_TIMEOUT) -> Any:
    """A uvicorn server of an ASGI application, without websockets; connections without a request are closed in time."""
    require_starlette()
    import uvicorn
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    timeout = HeaderTimeout(header_timeout)
    protocol: Any = timeout.wrap_protocol(AutoHTTPProtocol)
    return uvicorn.Server(
        uvicorn.Config(
            timeout.wrap_app(app),
            http=protocol,
            log_level="critical",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
            server_header=False,
            proxy_headers=False,  # the address of a client is that of its connection
            ws="none",
        )
    )
