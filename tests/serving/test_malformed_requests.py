"""The HTTP server against clients that are slow or send nonsense: it serves others meanwhile and afterwards."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from language.small_lm import model_and_tokenizer, small_engine, user

from thespis.language.local_engine import LocalEngine
from thespis.language.tokenizer import Tokenizer
from thespis.serving import auth
from thespis.serving.server import background_server

NUM_REQUESTS = 1_000
GOOD = {"model": "tiny", "messages": user("hi"), "max_tokens": 20, "seed": 1}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with background_server(small_engine(), "tiny", max_tokens=20) as url:
        yield url


def connect(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").removesuffix("/v1").partition(":")
    return socket.create_connection((host, int(port)), timeout=30)


VALUES = [
    *(None, True, False, 0, -1, 3, 2**31, 2**63, -(2**70), 10**400, 1.5, -0.0, 1e308, float("nan"), float("inf")),
    *("", "a", "\ud800", "\udc00\ud800", "\0", "\N{COMBINING ACUTE ACCENT}" * 3, "x" * 5_000, "<end>", "<unk>"),
    *([], [[]], {}, {"a": {}}, [None], [1, 2, 3], [-1], [2**40], ["a", 1], [["a"]], [{"type": "text"}], {"type": "x"}),
    *([{"role": "user"}], [{"role": "user", "content": "\udfff"}], [{"role": "user", "content": "a"}] * 2),
    *([{"role": "assistant", "content": "a"}], [{"role": 3, "content": []}], [{"role": "tool", "content": "a"}]),
]
NAMES = [
    *("model", "messages", "prompt", "temperature", "top_p", "top_k", "min_p", "max_tokens", "max_completion_tokens"),
    *("seed", "n", "stop", "stream", "stream_options", "logprobs", "top_logprobs", "return_token_ids", "echo", "tools"),
    *("response_format", "logit_bias", "user", "metadata", "best_of", "suffix", "functions", "\ud83d", ""),
]
PATHS = ["/chat/completions", "/completions"]
OTHER_PATHS = ["/models", "/models/%ff", "/models/%ED%A0%80", "/../health", "/embeddings", "/chat", "//", "/%00"]


def random_body(rng: random.Random) -> bytes:
    """A body that is nonsense in one of several ways."""
    kind = rng.randrange(6)
    if kind == 0:
        return rng.randbytes(rng.randrange(200))
    if kind == 1:
        opening, depth = rng.choice(["[", '{"a":', '{"messages":[']), rng.choice([3, 500, 20_000])
        return (opening * depth + rng.choice(["", "1", "null"])).encode()
    body: dict[str, Any] = {"model": "tiny", "max_tokens": 4}
    body |= {"messages": user("hi")} if rng.random() < 0.5 else {"prompt": "hi"}
    for _ in range(rng.randrange(1, 4)):
        body[rng.choice(NAMES)] = rng.choice(VALUES)
    if kind == 2:
        body["messages"] = [
            {"role": rng.choice(["user", "system", "assistant", "tool", "x"]), "content": "a"} for _ in "abc"
        ]
    if kind == 3:
        nested: Any = rng.choice(VALUES)
        for _ in range(rng.randrange(1, 200)):
            nested = [nested] if rng.random() < 0.5 else {"content": nested}
        body[rng.choice(NAMES)] = nested
    text = json.dumps(body, ensure_ascii=rng.random() < 0.8).encode("utf-8", "surrogatepass")
    if kind == 4:
        text = text[: rng.randrange(len(text))]
    if kind == 5:
        place = rng.randrange(len(text))
        text = text[:place] + rng.randbytes(rng.randrange(1, 4)) + text[place + 1 :]
    return text


def test_malformed_requests_are_never_server_errors(url):
    rng, statuses = random.Random(0), Counter[int]()
    with httpx.Client(timeout=60) as client:
        for i in range(NUM_REQUESTS - 100):
            if i % 10:
                response = client.post(url + rng.choice(PATHS), content=random_body(rng))
            else:
                method = rng.choice(["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "POST", "BREW"])
                headers = {"Host": rng.choice(["[", "a b", "x"])}
                response = client.request(method, url + rng.choice(PATHS + OTHER_PATHS), headers=headers)
            statuses[response.status_code] += 1
            assert response.status_code < 500, (i, response.request.content[:300], response.text[:300])
    for _ in range(100):
        with connect(url) as connection, contextlib.suppress(ConnectionError):
            head = rng.choice([b"", b"POST /v1/completions HTTP/1.1\r\n", b"GET \xff HTTP/1.1\r\n\r\n"])
            length = rng.choice([b"", b"Content-Length: -1\r\n", b"Content-Length: " + b"9" * 30 + b"\r\n"])
            connection.sendall(head + length + rng.randbytes(50) + b"\r\n\r\n")
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(1_000)
            assert not answer or (answer.startswith(b"HTTP/1.1 4") and b" 500 " not in answer), answer
    assert statuses[400] > NUM_REQUESTS / 2, statuses
    assert httpx.post(f"{url}/chat/completions", json=GOOD, timeout=60).status_code == 200


@pytest.mark.slow
def test_slow_heads_are_closed_and_slow_responses_are_not():
    """Clients that send nothing, or their head byte by byte, also after a first request, lose their connection."""
    answer = None

    def ask(url: str) -> None:
        nonlocal answer
        answer = httpx.post(f"{url}/chat/completions", json=GOOD, timeout=60)

    class Slow(LocalEngine):
        def stream_batch(self, prompts, is_active=lambda i: True):
            time.sleep(1.5)
            yield from super().stream_batch(prompts, is_active)

    engine = Slow(*model_and_tokenizer(), max_length=256, batch_size=4)
    with background_server(engine, "tiny", header_timeout=0.5) as url:
        asking = threading.Thread(target=ask, args=(url,))
        asking.start()
        with connect(url) as silent, connect(url) as slow, connect(url) as used:
            used.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
            assert used.recv(1_000).startswith(b"HTTP/1.1 200")
            with contextlib.suppress(ConnectionError):
                for _ in range(100):
                    slow.sendall(b"G")
                    used.sendall(b"G")
                    time.sleep(0.05)
                pytest.fail("the server keeps slow connections open")
            assert is_closed(silent) and is_closed(slow) and is_closed(used)
        asking.join()
        assert answer.status_code == 200


def is_closed(connection: socket.socket) -> bool:
    """Whether the server closes the connection, maybe after the rest of an earlier response."""
    try:
        while connection.recv(1_000):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def test_a_slow_body_is_refused(url, monkeypatch):
    monkeypatch.setattr(auth, "BODY_TIMEOUT", 0.2)
    with connect(url) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
        answer = connection.recv(1_000)
    assert answer.startswith(b"HTTP/1.1 408") and b"did not arrive within 0.2 s" in answer


def test_others_are_served_while_a_prompt_is_tokenized():
    """The tokenizer waits until another request has been answered."""
    model, tokenizer = model_and_tokenizer()
    begun, served = threading.Event(), threading.Event()

    class Waiting(Tokenizer):
        def encode_with_offsets(self, text):
            begun.set()
            assert served.wait(30)
            return super().encode_with_offsets(text)

    waiting = Waiting(tokenizer.backend, tokenizer.stop_tokens, tokenizer.pad_token)
    with background_server(LocalEngine(model, waiting, max_length=256, batch_size=4), "tiny") as url:
        asking = threading.Thread(
            target=httpx.post, args=(f"{url}/chat/completions",), kwargs={"json": GOOD, "timeout": 60}
        )
        asking.start()
        assert begun.wait(30)
        assert httpx.get(f"{url}/models", timeout=10).status_code == 200
        served.set()
        asking.join()
