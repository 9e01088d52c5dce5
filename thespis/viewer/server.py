"""Running the web pages on this machine, in the foreground or in a thread."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

from thespis.serving.app import require_starlette
from thespis.serving.header_timeout import HeaderTimeout
from thespis.serving.server import HEADER_TIMEOUT, interrupt, open_socket
from thespis.viewer.app import create_app
from thespis.viewer.episodes import EpisodeLibrary
from thespis.viewer.guard import make_token
from thespis.viewer.questions import Questions

HOST = "127.0.0.1"
_SHUTDOWN_SECONDS = 2


class PageServer:
    """A server of one page at the loopback address. ``url``: its address, with a random token."""

    def __init__(self, library: EpisodeLibrary, questions: Questions | None, port: int = 0, token: str | None = None):
        require_starlette()
        import uvicorn
        from uvicorn.protocols.http.auto import AutoHTTPProtocol

        self._listener = open_socket(HOST, port)
        port, token = self._listener.getsockname()[1], token or make_token()
        self.url = f"http://{HOST}:{port}/{token}/"
        timeout = HeaderTimeout(HEADER_TIMEOUT)
        protocol: Any = timeout.wrap_protocol(AutoHTTPProtocol)
        self._server = uvicorn.Server(
            uvicorn.Config(
                timeout.wrap_app(create_app(library, questions, token, port)),
                http=protocol,
                log_level="critical",
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
                server_header=False,
                proxy_headers=False,
                ws="none",
            )
        )

    def run(self) -> None:
        """Serve until SIGINT or SIGTERM."""
        previous_handler = signal.signal(signal.SIGTERM, interrupt)
        try:
            self._server.run(sockets=[self._listener])
        except KeyboardInterrupt:  # raised again by uvicorn after its shutdown
            pass
        finally:
            signal.signal(signal.SIGTERM, previous_handler)
            self._listener.close()

    @contextlib.contextmanager
    def background(self) -> Iterator[str]:
        """Serve in a thread during a ``with`` block; yields the address."""
        thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]}, daemon=True)
        thread.start()
        try:
            yield self.url
        finally:
            self._server.should_exit = True
            thread.join()
            self._listener.close()
