"""A small real server of chat completions that does on request what servers should not."""

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
class Seen:
    """What the server is to do next, and what it saw. Without a plan it answers ``a0``, ``a1`` ... in time."""

    plan: list[Any] = dataclasses.field(default_factory=list)
    bodies: list[dict] = dataclasses.field(default_factory=list)
    keys: list[str | None] = dataclasses.field(default_factory=list)
    times: list[float] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    under_way: int = 0
    peak: int = 0
    lock: Any = dataclasses.field(default_factory=threading.Lock)
    url: str = ""


def document(number: int, n: int = 1) -> dict[str, Any]:
    choices = [
        {"index": i, "message": {"role": "assistant", "content": f"a{number}" + "'" * i}, "finish_reason": "stop"}
        for i in reversed(range(n))
    ]
    usage = {"prompt_tokens": 10 + number, "completion_tokens": 3, "total_tokens": 13 + number}
    return {"object": "chat.completion", "choices": choices, "usage": usage}


def events(number: int) -> list[dict[str, Any]]:
    def event(delta: dict, finish: str | None = None) -> dict[str, Any]:
        return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    usage = {"prompt_tokens": 10 + number, "completion_tokens": 3}
    return [event({"role": "assistant"}), event({"content": "a"}), event({"content": str(number)}), event({}, "stop"),
            {"choices": [], "usage": usage}]  # fmt: skip


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        seen = self.server.seen
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with seen.lock:
            number = len(seen.bodies)
            seen.bodies.append(body)
            seen.keys.append(self.headers["Authorization"])
            seen.times.append(time.monotonic())
            seen.under_way += 1
            seen.peak = max(seen.peak, seen.under_way)
            plan = seen.plan.pop(0) if seen.plan else None
        try:
            time.sleep(seen.seconds)
            self.misbehave(plan, number, body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with seen.lock:
                seen.under_way -= 1

    def misbehave(self, plan: Any, number: int, body: dict) -> None:
        match plan:
            case None if body.get("stream"):
                self.sent(200, b"".join(b"data: %s\n\n" % json.dumps(e).encode() for e in events(number))
                          + b"data: [DONE]\n\n", {"Content-Type": "text/event-stream"})  # fmt: skip
            case None:
                self.sent(200, json.dumps(document(number, body.get("n", 1))).encode())
            case "dropped":
                self.close_connection = True
            case "cut":
                self.sent(200, b'{"choices": [', {"Content-Length": "1000"})
                self.close_connection = True
            case "stream cut":
                self.sent(200, b"data: %s\n\n" % json.dumps(events(number)[1]).encode(), {"Content-Length": "1000"})
                self.close_connection = True
            case ("slow", seconds):
                time.sleep(seconds)
                self.sent(200, json.dumps(document(number)).encode())
            case (status, headers, text):
                self.sent(status, text.encode(), headers)

    def sent(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()


class _Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True
    seen: Seen

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


@contextlib.contextmanager
def misbehaving(*plan: Any, seconds: float = 0.0) -> Iterator[Seen]:
    """A server at a free port; each request takes ``seconds`` and what the next entry of the plan says."""
    seen = Seen(list(plan), seconds=seconds)
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.seen = seen
        seen.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield seen
        finally:
            server.shutdown()
            thread.join()
