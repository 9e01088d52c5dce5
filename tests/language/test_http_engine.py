"""HTTP engine against real servers that are busy, broken, slow or gone: retries, limits, usage, cache and secrets."""

from __future__ import annotations

import asyncio
import datetime
import email.utils
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from misbehaving_server import misbehaving
from small_lm import user

from thespis.core.errors import UserError
from thespis.language import http_client
from thespis.language.chat import Conversation
from thespis.language.endpoint import EndpointEngine, EndpointUsage, TokenPrices
from thespis.language.engine import (
    Completion,
    CompletionChoice,
    Engine,
    GenerationConfig,
    RequestError,
    Usage,
    join_chunks,
)
from thespis.language.http_client import EndpointError
from thespis.language.response_cache import ResponseCache

KEY = "sk-very-secret-0123456789"
QUICK = {"initial_backoff": 0.01, "max_attempts": 4, "timeout": 5.0}


def make_engine(server, **more) -> EndpointEngine:
    return EndpointEngine(server.url, "some", **(QUICK | more))


def test_request_and_response_fields():
    request = GenerationConfig(0.5, 0.9, 7, 0.1, 99, ("x", "y"), seed=4, n=2)
    with misbehaving() as server, make_engine(server, extra_body={"logit_bias": {"1": 2}, "top_p": None}) as engine:
        assert isinstance(engine, Engine)
        (answer,) = engine.generate([Conversation((), (), tuple(user("hi")))], request)
    assert (
        answer == Completion((CompletionChoice("a0", "stop"), CompletionChoice("a0'", "stop")), Usage(10, 3))
        and answer.text == "a0"
    )
    assert server.bodies == [
        {
            "model": "some",
            "messages": user("hi"),
            "temperature": 0.5,
            "top_k": 7,
            "min_p": 0.1,
            "max_tokens": 99,
            "stop": ["x", "y"],
            "seed": 4,
            "n": 2,
            "logit_bias": {"1": 2},
        }
    ]
    assert server.keys == [None]


def test_tokens_and_log_probs_are_read():
    content = [{"token": "a", "logprob": -0.5, "top_logprobs": []}, {"token": "b", "logprob": -1.5}]
    choice = {"index": 0, "message": {"content": "ab"}, "finish_reason": "length", "logprobs": {"content": content}}
    text = json.dumps({"choices": [choice | {"token_ids": [3, 4]}]})
    with misbehaving((200, {}, text)) as server, make_engine(server) as engine:
        (answer,) = engine.generate([user("hi")])
        assert engine.usage == EndpointUsage(num_calls=1, num_unreported=1)
    assert answer == Completion((CompletionChoice("ab", "length", (3, 4), (-0.5, -1.5)),), None)


@pytest.mark.parametrize(
    "failure",
    ["dropped", "cut", (500, {}, "oh"), (503, {}, ""), (429, {}, "{}"), (200, {}, "<html>")],
    ids=str,
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_transient_errors_are_retried(failure, stream):
    with misbehaving(failure, failure) as server, make_engine(server) as engine:
        answer = join_chunks(engine.stream(user("hi")), 1) if stream else engine.generate([user("hi")])[0]
        assert answer.text == "a2" and answer.usage == Usage(12, 3)
        assert engine.usage == EndpointUsage(num_calls=1, num_retries=2, prompt_tokens=12, completion_tokens=3)
    assert len(server.bodies) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_client_errors_are_not_retried(status):
    text = json.dumps({"error": {"message": "no\nsuch thing"}})
    with misbehaving((status, {}, text)) as server, make_engine(server) as engine:
        with pytest.raises(EndpointError, match=f"did not answer: {status} .*: no such thing") as error:
            engine.generate([user("hi")])
        assert error.value.status == status and "\n" not in str(error.value)
    assert len(server.bodies) == 1


def test_exhausted_quota_is_not_retried():
    text = json.dumps({"error": {"message": "pay", "code": "insufficient_quota"}})
    with (
        misbehaving((429, {}, text)) as server,
        make_engine(server) as engine,
        pytest.raises(EndpointError, match=r"429.*pay"),
    ):
        engine.generate([user("hi")])
    assert len(server.bodies) == 1


def test_retry_after_seconds():
    with misbehaving((429, {"Retry-After": "0.5"}, "{}")) as server, make_engine(server) as engine:
        engine.generate([user("hi")])
    assert 0.5 <= server.times[1] - server.times[0] < 1.5


def test_retry_after_date_and_limit():
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=200)
    assert 195 < http_client._parse_retry_after(email.utils.format_datetime(later, usegmt=True)) <= 200
    assert (
        http_client._parse_retry_after("soon")
        == http_client._parse_retry_after(None)
        == http_client._parse_retry_after("-3")
        == 0
    )
    too_long = pytest.raises(EndpointError, match="asks to wait for 61 s")
    with misbehaving((503, {"Retry-After": "61"}, "")) as server, make_engine(server) as engine, too_long:
        engine.generate([user("hi")])
    assert len(server.bodies) == 1


def test_backoff_doubles_with_jitter():
    with misbehaving(*["dropped"] * 4) as server, make_engine(server, initial_backoff=0.04, max_attempts=5) as engine:
        engine.generate([user("hi")])
    pauses = [b - a for a, b in zip(server.times, server.times[1:], strict=False)]
    for i, pause in enumerate(pauses):
        assert 0.02 * 2**i <= pause < 0.06 * 2**i + 0.25
    assert len({round(pause / 2**i, 4) for i, pause in enumerate(pauses)}) > 1


def test_slow_responses_time_out():
    with (
        misbehaving(("slow", 1.0), ("slow", 1.0)) as server,
        make_engine(server, timeout=0.1, max_attempts=2) as engine,
    ):
        start = time.monotonic()
        with pytest.raises(EndpointError, match=r"no answer in 0.1 s \(asked 2 times\)"):
            engine.generate([user("hi")])
        assert time.monotonic() - start < 0.9 and len(server.bodies) == 2


def test_connection_errors_are_one_line():
    with EndpointEngine("http://127.0.0.1:9/v1", "some", max_attempts=2, initial_backoff=0.0) as engine:
        with pytest.raises(EndpointError, match=r"ConnectError.*asked 2 times"):
            engine.generate([user("hi")])
        with pytest.raises(EndpointError, match="ConnectError"):
            list(engine.stream(user("hi")))


def test_stream_arrives_in_chunks_and_is_not_retried():
    with misbehaving(None, "stream cut") as server, make_engine(server) as engine:
        chunks = list(engine.stream(user("hi")))
        assert [p.text for p in chunks if p.text] == ["a", "0"] and join_chunks(chunks, 1).usage == Usage(10, 3)
        received = []
        with pytest.raises(EndpointError, match="a stream of it was cut"):
            received.extend(chunk.text for chunk in engine.stream(user("hi")))
        assert engine.usage.num_calls == 1
    assert server.bodies[0]["stream"] and server.bodies[0]["stream_options"] == {"include_usage": True}
    assert len(server.bodies) == 2


@pytest.mark.parametrize("limit", [1, 3])
def test_concurrency_limit(limit):
    with misbehaving(seconds=0.03) as server, make_engine(server, max_concurrency=limit) as engine:
        streams = [threading.Thread(target=lambda: list(engine.stream(user("s")))) for _ in range(4)]
        for thread in streams:
            thread.start()
        answers = engine.generate([user(str(i)) for i in range(12)])
        for thread in streams:
            thread.join()
        assert len(answers) == 12 and server.peak == limit and engine.usage.num_calls == 16


def test_usage_is_exact():
    prices, numbers = TokenPrices(0.1, 0.7), range(20)
    with misbehaving(*["dropped"] * 3) as server, make_engine(server, prices=prices) as engine:
        answers = engine.generate([user(str(i)) for i in numbers], GenerationConfig(n=2))
        usage = engine.usage
    prompt, completion = sum(a.usage.prompt_tokens for a in answers), sum(a.usage.completion_tokens for a in answers)
    assert (usage.num_calls, usage.num_retries, usage.prompt_tokens, usage.completion_tokens) == (
        20,
        3,
        prompt,
        completion,
    ) and completion == 60
    assert usage.cost == pytest.approx((0.1 * prompt + 0.7 * completion) / 1e6, rel=1e-12) and usage.num_unreported == 0


def test_responses_keep_the_order_of_requests():
    with misbehaving(("slow", 0.3)) as server, make_engine(server) as engine:
        answers = engine.generate([user(str(i)) for i in range(6)])
    expected = {body["messages"][0]["content"]: f"a{i}" for i, body in enumerate(server.bodies)}
    assert [answer.text for answer in answers] == [expected[str(i)] for i in range(6)]


def test_async_calls_from_another_event_loop():
    async def both(engine):
        (answer,) = await engine.generate_async([user("hi")])
        return answer, [piece async for piece in engine.stream_async(user("hi"))]

    with misbehaving(("slow", 0.0)) as server, make_engine(server) as engine:
        answer, pieces = asyncio.run(both(engine))
        assert answer.text == "a0" and join_chunks(pieces, 1).text == "a1"


def test_cached_responses_need_no_server(tmp_path):
    request, dialogues = GenerationConfig(seed=1), [user("a"), user("b"), user("a")]
    with misbehaving() as server, make_engine(server, cache=tmp_path, prices=TokenPrices(1.0, 1.0)) as engine:
        first = engine.generate(dialogues, request)
        streamed = join_chunks(engine.stream(user("c"), request), 1)
        assert len(server.bodies) == 4 and first[0] != first[2], "equal requests in one call are answered separately"
        engine.generate([user("a")], GenerationConfig(seed=2))
        assert len(server.bodies) == 5
    with make_engine(server, cache=tmp_path, prices=TokenPrices(1.0, 1.0), max_attempts=1) as engine:
        assert engine.generate(dialogues, request) == first
        assert join_chunks(engine.stream(user("c"), request), 1) == streamed == engine.generate([user("c")], request)[0]
        assert engine.usage == EndpointUsage(num_cached=5, cost=0.0)
        with pytest.raises(EndpointError, match="ConnectError"):
            engine.generate([user("a")], GenerationConfig(seed=3))


def test_damaged_cache_entries_are_ignored(tmp_path):
    cache = ResponseCache(tmp_path)
    cache.put({"a": 1}, {"b": 2})
    assert cache.get({"a": 1}) == {"b": 2} and cache.get({"a": 2}) is None
    for damage in (b"", b'{"asked": {"a": 1}, "respon', b"[]", b'{"asked": {"a": 2}, "response": {}}', b"\xff"):
        cache.entry_path({"a": 1}).write_bytes(damage)
        assert cache.get({"a": 1}) is None
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write answers"):
        ResponseCache(tmp_path / "file")


WRITER = """
import sys
from thespis.language.response_cache import ResponseCache
cache, i = ResponseCache(sys.argv[1]), 0
while True:
    cache.put({"number": i % 7}, {"text": "x" * 500_000, "end": True})
    i += 1
    print(i, flush=True)
"""


def test_killed_writer_leaves_complete_entries_only(tmp_path):
    expected = {"text": "x" * 500_000, "end": True}
    for i in range(4):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        writer.stdout.readline()
        time.sleep(0.02 + 0.007 * i)
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        entries = [ResponseCache(tmp_path).get({"number": n}) for n in range(7)]
        assert expected in entries and all(entry in (None, expected) for entry in entries)
        assert all(json.loads(path.read_bytes())["response"] == expected for path in tmp_path.glob("*/*.json"))
    parts = list(tmp_path.glob("*/.*.part"))
    for part in parts:
        os.utime(part, (0, 0))
    ResponseCache(tmp_path)
    assert not list(tmp_path.glob("*/.*.part"))


def test_api_key_is_sent_to_the_server_only(tmp_path, monkeypatch, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("SOME_KEY", f" {KEY}\n")
    echo = json.dumps({"error": {"message": f"Incorrect key {KEY} given"}})
    leak = json.dumps({"choices": [{"index": 0, "message": {"content": f"it is {KEY}"}, "finish_reason": "stop"}]})
    outputs = []
    with misbehaving((401, {}, echo), (200, {}, leak), (400, {}, f"{KEY}!")) as server:
        engine = make_engine(server, key_variable="SOME_KEY", cache=tmp_path)
        with engine:
            for _ in range(3):
                try:
                    engine.generate([user("hi")], GenerationConfig(seed=len(outputs)))
                except EndpointError as error:
                    outputs.append(f"{error!r} {error.__cause__!r} {error.__dict__}")
                outputs.append(repr(engine))
            outputs += [repr(vars(engine)), repr(engine.config), repr(engine.usage)]
            assert server.keys == [f"Bearer {KEY}"] * 3
    files = [path.read_text() for path in tmp_path.rglob("*.json")]
    assert len(files) == 1 and "***" in "".join(outputs)
    for text in (*outputs, *files, caplog.text, *capfd.readouterr()):
        assert KEY not in text
    assert "POST" in caplog.text, "nothing is logged: this test checks nothing"


def test_invalid_keys_and_urls_are_refused(monkeypatch):
    monkeypatch.delenv("NO_KEY", raising=False)
    monkeypatch.setenv("BAD_KEY", f"{KEY}\nX-More: 1")
    for variable in ("NO_KEY", "BAD_KEY"):
        with pytest.raises(UserError, match=f"the variable {variable} does not hold a key") as error:
            EndpointEngine("http://127.0.0.1/v1", "some", key_variable=variable)
        assert KEY not in str(error.value)
    for url in ("127.0.0.1:80", "ftp://127.0.0.1", "http://"):
        with pytest.raises(UserError, match="must be like"):
            EndpointEngine(url, "some")
    for url in (f"http://me:{KEY}@127.0.0.1/v1", f"http://127.0.0.1/v1?key={KEY}"):
        with pytest.raises(UserError, match="no secrets") as error:
            EndpointEngine(url, "some")
        assert KEY not in str(error.value)
    with pytest.raises(UserError, match="1 or more"):
        EndpointEngine("http://127.0.0.1/v1", "some", max_attempts=0)
    with EndpointEngine("http://127.0.0.1/v1", "some") as engine, pytest.raises(RequestError, match="needs messages"):
        engine.generate([[]])


def test_close_cancels_active_requests():
    before = set(threading.enumerate())
    with misbehaving(("slow", 1.0)) as server:
        engine = make_engine(server)
        threading.Timer(0.2, engine.close).start()
        start = time.monotonic()
        with pytest.raises(EndpointError, match="is closed"):
            engine.generate([user("hi")])
        assert time.monotonic() - start < 0.9
        for call in (lambda: engine.generate([user("hi")]), lambda: list(engine.stream(user("hi")))):
            with pytest.raises(EndpointError, match="is closed"):
                call()
        engine.close()
    threads = [t for t in set(threading.enumerate()) - before if t.name == "endpoint"]
    for thread in threads:
        thread.join(5.0)
    assert not [thread for thread in threads if thread.is_alive()]
