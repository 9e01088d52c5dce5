"""Serving a directory until somebody stops it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

from thespis.core.errors import UserError
from thespis.language.local import Local
from thespis.serving.app import application, require_starlette
from thespis.serving.desk import Desk

_GRACE = 5  # seconds that connections have to end by themselves


def key_in(variable: str | None) -> str | None:
    """The key in an environment variable. Raises ``UserError`` if there is none."""
    if variable is None:
        return None
    found = os.environ.get(variable, "").strip()
    if not found:
        raise UserError(f"the variable {variable} is empty: set it to the key that clients must show")
    return found


def opened(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises ``UserError`` if the port is taken or the host is none of this machine's."""
    if not 0 <= port < 2**16:
        raise UserError(f"--port {port} does not fit: ports are 0 to {2**16 - 1}")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise UserError(f"cannot listen at {host}:{port}: {error}; choose another --host or --port") from None


def serve(
    desk: Desk, listening: socket.socket, name: str, *, key: str | None, length: int, log: Callable[[str], None]
) -> None:
    """Serve until SIGINT or SIGTERM, which leave what is under way some seconds to end."""
    server = _server(desk, name, key=key, length=length, log=log)
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:  # uvicorn has shut down, and passes on what stopped it
        pass
    finally:
        signal.signal(signal.SIGTERM, before)
        desk.close()


@contextlib.contextmanager
def serving(
    engine: Local, name: str = "model", *, key: str | None = None, length: int = 256, window: float = 0.005,
    limit: int = 0, port: int = 0, log: Callable[[str], None] = lambda line: None,
) -> Iterator[str]:  # fmt: skip
    """Serve at 127.0.0.1 in a thread while the block runs; gives the address up to ``/v1``."""
    desk, listening = Desk(engine, window, limit), opened("127.0.0.1", port)
    server = _server(desk, name, key=key, length=length, log=log)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="server", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        thread.join()
        desk.close()
        listening.close()


def _server(desk: Desk, name: str, **more: Any) -> Any:
    require_starlette()
    import uvicorn

    app: Any = application(desk, name, **more)
    return uvicorn.Server(
        uvicorn.Config(
            app, log_level="critical", access_log=False, lifespan="off", timeout_graceful_shutdown=_GRACE,
            server_header=False, ws="none",
        )
    )  # fmt: skip


def _interrupt(*signal: Any) -> None:
    raise KeyboardInterrupt
