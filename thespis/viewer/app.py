"""The web application of ``thespis view`` and ``thespis label``: one page each, JSON, and frames."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from thespis.core.errors import UserError
from thespis.evaluation.episode_frames import frames_path, read_frame
from thespis.serving.app import require_starlette
from thespis.viewer.episodes import EpisodeLibrary, episode_json
from thespis.viewer.guard import MAX_BODY_BYTES, LocalGuard
from thespis.viewer.questions import Questions

_STATIC = Path(__file__).parent / "static"
_STATIC_TYPES = {".css": "text/css", ".js": "text/javascript", ".html": "text/html", ".svg": "image/svg+xml"}
_MAX_SECONDS = 86_400.0


class PageHandlers:
    """Request handlers. ``questions``: what a person is asked; ``None`` in a viewer."""

    def __init__(self, library: EpisodeLibrary, questions: Questions | None):
        self.library, self.questions = library, questions

    async def page(self, request: Any) -> Any:
        """``GET /``: the page."""
        return _static_response("view.html" if self.questions is None else "label.html")

    async def static(self, request: Any) -> Any:
        """``GET /static/NAME``: a file of the page."""
        return _static_response(request.path_params["name"])

    def episodes(self, request: Any) -> Any:
        """``GET /api/episodes``: the list of episodes."""
        return _json_response({"episodes": self.library.summaries()})

    def episode(self, request: Any) -> Any:
        """``GET /api/episodes/ID``: an episode."""
        return _json_response(episode_json(self.library.path(request.path_params["id"])))

    def frame(self, request: Any) -> Any:
        """``GET /frames/INDEX/ID``: an image of an episode."""
        from starlette.responses import Response

        path = self.library.path(request.path_params["id"])
        content = read_frame(frames_path(path), request.path_params["index"])
        return Response(content, media_type="image/webp", headers={"Cache-Control": "private, max-age=3600"})

    def status(self, request: Any) -> Any:
        """``GET /api/labels``: how many questions are answered, and which is the next."""
        return _json_response(self._asked.status())

    def question(self, request: Any) -> Any:
        """``GET /api/questions/INDEX``: both sides of a question."""
        return _json_response(self._asked.question(request.path_params["index"]))

    async def answer(self, request: Any) -> Any:
        """``POST /api/labels``: an answer, written before this returns. The body: query, answer and seconds."""
        body = await _read_json(request)
        query, answer = body.get("query"), body.get("answer")
        if type(query) is not int or type(answer) is not str:
            raise UserError("an answer has query, a whole number, and answer, a text")
        self._asked.labels.answer(query, answer, _seconds(body.get("seconds")))
        self._asked.export()
        return _json_response(self._asked.status())

    async def undo(self, request: Any) -> Any:
        """``POST /api/undo``: take back the last answer."""
        await _read_json(request)
        query = self._asked.labels.undo()
        self._asked.export()
        return _json_response(self._asked.status() | {"undone": query})

    @property
    def _asked(self) -> Questions:
        if self.questions is None:
            raise UserError("this is a viewer: labels are given with `thespis label`")
        return self.questions


def create_app(library: EpisodeLibrary, questions: Questions | None, token: str, port: int) -> Any:
    """The ASGI application of a viewer, or with ``questions`` of a labelling page, below ``/TOKEN/``."""
    require_starlette()
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.routing import Route

    async def on_user_error(request: Any, error: Any) -> Any:
        return _json_response({"error": str(error)}, 404 if request.method == "GET" else 400)

    async def on_http_error(request: Any, error: Any) -> Any:
        return _json_response({"error": str(error.detail)}, error.status_code)

    pages = PageHandlers(library, questions)
    routes = [
        Route("/", pages.page),
        Route("/static/{name}", pages.static),
        Route("/api/episodes", pages.episodes),
        Route("/api/episodes/{id:path}", pages.episode),
        Route("/frames/{index:int}/{id:path}", pages.frame),
        Route("/api/labels", pages.status, methods=["GET"]),
        Route("/api/labels", pages.answer, methods=["POST"]),
        Route("/api/undo", pages.undo, methods=["POST"]),
        Route("/api/questions/{index:int}", pages.question),
    ]
    handlers: Any = {UserError: on_user_error, HTTPException: on_http_error}
    return LocalGuard(Starlette(routes=routes, exception_handlers=handlers), token, port)


def _seconds(value: Any) -> float | None:
    """A time that a page has measured; ``None`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _MAX_SECONDS:
        return None
    return float(value)


async def _read_json(request: Any) -> dict[str, Any]:
    """The object of a body. Raises ``UserError`` for anything else."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise UserError(f"a body must have at most {MAX_BODY_BYTES} bytes")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise UserError("the body is not JSON") from None
    if not isinstance(document, dict):
        raise UserError("the body is no JSON object")
    return document


def _json_response(document: dict[str, Any], status: int = 200) -> Any:
    from starlette.responses import Response

    body = json.dumps(document, allow_nan=False).encode()
    return Response(body, status, media_type="application/json", headers={"Cache-Control": "no-store"})


def _static_response(name: str) -> Any:
    from starlette.responses import Response

    path = _STATIC / name
    if path.parent != _STATIC or not path.is_file():
        raise UserError(f"there is no file {name[:80]!r}")
    return Response(path.read_bytes(), media_type=_STATIC_TYPES.get(path.suffix, "application/octet-stream"))
