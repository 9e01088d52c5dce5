"""A small HTTP server of chat completions that fails on request."""

from __future__ import annotations

import contextlib
import dataclasses
import http.server
import json
import threading
import time
from collections.abc import Iterator
from typing import Any


@dataclasses.dataclass
class ServerState:
    """Planned failures and received requests of the server. Without a plan it answers ``a0``, ``a1`` ... at once."""

    plan: list[Any] = dataclasses.field(default_factory=list)
    bodies: list[dict] = dataclasses.field(default_factory=list)
    keys: list[str | None] = dataclasses.field(default_factory=list)
    times: list[float] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    num_active: int = 0
    peak: int = 0
    lock: Any = dataclasses.field(default_factory=threading.Lock)
    url: str = ""


def completion_json(number: int, n: int = 1) -> dict[str, Any]:
    choices = [
        {"index": i, "message": {"role": "assistant", "content": f"a{number}" + "'" * i}, "finish_reason": "stop"}
        for i in reversed(range(n))
    ]
    usage = {"prompt_tokens": 10 + number, "completion_tokens": 3, "total_tokens": 13 + number}
    return {"object": "chat.completion", "choices": choices, "usage": usage}


def stream_events(number: int) -> list[dict[str, Any]]:
    def event(delta: dict, finish: str | None = None) -> dict[str, Any]:
        return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    usage = {"prompt_tokens": 10 + number, "completion_tokens": 3}
    return [
        event({"role": "assistant"}),
        event({"content": "a"}),
        event({"content": str(number)}),
        event({}, "stop"),
        {"choices": [], "usage": usage},
    ]


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        state = self.server.state
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with state.lock:
            number = len(state.bodies)
            state.bodies.append(body)
            state.keys.append(self.headers["Authorization"])
            state.times.append(time.monotonic())
            state.num_active += 1
            state.peak = max(state.peak, state.num_active)
            plan = state.plan.pop(0) if state.plan else None
        try:
            time.sleep(state.seconds)
            self.misbehave(plan, number, body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with state.lock:
                state.num_active -= 1

    def misbehave(self, plan: Any, number: int, body: dict) -> None:
        match plan:
            case None if body.get("stream"):
                self.send(
                    200,
                    b"".join(b"data: %s\n\n" % json.dumps(e).encode() for e in stream_events(number))
                    + b"data: [DONE]\n\n",
                    {"Content-Type": "text/event-stream"},
                )
            case None:
                self.send(200, json.dumps(completion_json(number, body.get("n", 1))).encode())
            case "dropped":
                self.close_connection = True
            case "cut":
                self.send(200, b'{"choices": [', {"Content-Length": "1000"})
                self.close_connection = True
            case "stream cut":
                self.send(
                    200, b"data: %s\n\n" % json.dumps(stream_events(number)[1]).encode(), {"Content-Length": "1000"}
                )
                self.close_connection = True
            case ("slow", seconds):
                time.sleep(seconds)
                self.send(200, json.dumps(completion_json(number)).encode())
            case (status, headers, text):
                self.send(status, text.encode(), headers)

    def send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()


class _Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True
    state: ServerState

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


@contextlib.contextmanager
def misbehaving(*plan: Any, seconds: float = 0.0) -> Iterator[ServerState]:
    """Run a server at a free port; each request takes ``seconds`` and then follows the next entry of the plan."""
    state = ServerState(list(plan), seconds=seconds)
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.state = state
        state.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()
