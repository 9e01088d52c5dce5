"""Running the web pages on this machine, in the foreground or in a thread."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from thespis.serving.server import make_server, open_socket, run_until_interrupted, running_in_thread
from thespis.viewer.app import create_app
from thespis.viewer.episodes import EpisodeLibrary
from thespis.viewer.guard import make_token
from thespis.viewer.questions import Questions

HOST = "127.0.0.1"


class PageServer:
    """A server of one page at the loopback address. ``url``: its address, with a random token."""

    def __init__(self, library: EpisodeLibrary, questions: Questions | None, port: int = 0):
        self._listener, token = open_socket(HOST, port), make_token()
        port = self._listener.getsockname()[1]
        self.url = f"http://{HOST}:{port}/{token}/"
        self._server = make_server(create_app(library, questions, token, port))

    def run(self) -> None:
        """Serve until SIGINT or SIGTERM."""
        try:
            run_until_interrupted(self._server, self._listener)
        finally:
            self._listener.close()

    @contextlib.contextmanager
    def background(self) -> Iterator[str]:
        """Serve in a thread during a ``with`` block; yields the address."""
        with running_in_thread(self._server, self._listener):
            yield self.url
