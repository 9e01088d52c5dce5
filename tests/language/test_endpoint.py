"""The engine behind HTTP, against real servers that are busy, broken, slow or gone."""

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
from misbehaving import misbehaving
from talkers import user

from thespis.core.errors import UserError
from thespis.language import calling
from thespis.language.calling import EndpointError
from thespis.language.chat import Conversation
from thespis.language.endpoint import Account, Endpoint, Prices
from thespis.language.engine import Answer, Engine, Refused, Reply, Request, Usage, collected
from thespis.language.replay import Replay

KEY = "sk-very-secret-0123456789"
QUICK = {"pause": 0.01, "attempts": 4, "timeout": 5.0}


def endpoint(seen, **more) -> Endpoint:
    return Endpoint(seen.url, "some", **(QUICK | more))


def test_a_request_is_sent_as_it_is_and_the_answer_read():
    request = Request(0.5, 0.9, 7, 0.1, 99, ("x", "y"), seed=4, n=2)
    with misbehaving() as seen, endpoint(seen, extra={"logit_bias": {"1": 2}, "top_p": None}) as there:
        assert isinstance(there, Engine)
        (answer,) = there.answers([Conversation((), (), tuple(user("hi")))], request)
    assert answer == Answer((Reply("a0", "stop"), Reply("a0'", "stop")), Usage(10, 3)) and answer.text == "a0"
    assert seen.bodies == [
        {"model": "some", "messages": user("hi"), "temperature": 0.5, "top_k": 7, "min_p": 0.1, "max_tokens": 99,
         "stop": ["x", "y"], "seed": 4, "n": 2, "logit_bias": {"1": 2}}
    ]  # fmt: skip
    assert seen.keys == [None]


def test_tokens_and_log_probs_are_read_where_they_are_given():
    content = [{"token": "a", "logprob": -0.5, "top_logprobs": []}, {"token": "b", "logprob": -1.5}]
    choice = {"index": 0, "message": {"content": "ab"}, "finish_reason": "length", "logprobs": {"content": content}}
    text = json.dumps({"choices": [choice | {"token_ids": [3, 4]}]})
    with misbehaving((200, {}, text)) as seen, endpoint(seen) as there:
        (answer,) = there.answers([user("hi")])
        assert there.account == Account(calls=1, untold=1)
    assert answer == Answer((Reply("ab", "length", (3, 4), (-0.5, -1.5)),), None)


@pytest.mark.parametrize(
    "trouble",
    ["dropped", "cut", (500, {}, "oh"), (503, {}, ""), (429, {}, "{}"), (200, {}, "<html>")],
    ids=str,
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_what_may_pass_is_asked_again(trouble, stream):
    with misbehaving(trouble, trouble) as seen, endpoint(seen) as there:
        answer = collected(there.stream(user("hi")), 1) if stream else there.answers([user("hi")])[0]
        assert answer.text == "a2" and answer.usage == Usage(12, 3)
        assert there.account == Account(calls=1, retries=2, prompt=12, said=3)
    assert len(seen.bodies) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_a_mistake_of_ours_is_not_asked_again(status):
    text = json.dumps({"error": {"message": "no\nsuch thing"}})
    with misbehaving((status, {}, text)) as seen, endpoint(seen) as there:
        with pytest.raises(EndpointError, match=f"did not answer: {status} .*: no such thing") as error:
            there.answers([user("hi")])
        assert error.value.status == status and "\n" not in str(error.value)
    assert len(seen.bodies) == 1


def test_a_quota_that_is_used_up_does_not_pass():
    text = json.dumps({"error": {"message": "pay", "code": "insufficient_quota"}})
    with misbehaving((429, {}, text)) as seen, endpoint(seen) as there, pytest.raises(EndpointError, match=r"429.*pay"):
        there.answers([user("hi")])
    assert len(seen.bodies) == 1


def test_it_waits_as_long_as_it_is_told():
    with misbehaving((429, {"Retry-After": "0.5"}, "{}")) as seen, endpoint(seen) as there:
        there.answers([user("hi")])
    assert 0.5 <= seen.times[1] - seen.times[0] < 1.5


def test_a_date_says_how_long_too_and_too_long_is_an_end():
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=200)
    assert 195 < calling._retry_after(email.utils.format_datetime(later, usegmt=True)) <= 200
    assert calling._retry_after("soon") == calling._retry_after(None) == calling._retry_after("-3") == 0
    told = pytest.raises(EndpointError, match="asks to wait for 61 s")
    with misbehaving((503, {"Retry-After": "61"}, "")) as seen, endpoint(seen) as there, told:
        there.answers([user("hi")])
    assert len(seen.bodies) == 1


def test_pauses_double_and_differ():
    with misbehaving(*["dropped"] * 4) as seen, endpoint(seen, pause=0.04, attempts=5) as there:
        there.answers([user("hi")])
    pauses = [b - a for a, b in zip(seen.times, seen.times[1:], strict=False)]
    for i, pause in enumerate(pauses):
        assert 0.02 * 2**i <= pause < 0.06 * 2**i + 0.25
    assert len({round(pause / 2**i, 4) for i, pause in enumerate(pauses)}) > 1


def test_slow_answers_are_given_up():
    with misbehaving(("slow", 1.0), ("slow", 1.0)) as seen, endpoint(seen, timeout=0.1, attempts=2) as there:
        begin = time.monotonic()
        with pytest.raises(EndpointError, match=r"no answer in 0.1 s \(asked 2 times\)"):
            there.answers([user("hi")])
        assert time.monotonic() - begin < 0.9 and len(seen.bodies) == 2


def test_nobody_there_is_one_line():
    with Endpoint("http://127.0.0.1:9/v1", "some", attempts=2, pause=0.0) as there:
        with pytest.raises(EndpointError, match=r"ConnectError.*asked 2 times"):
            there.answers([user("hi")])
        with pytest.raises(EndpointError, match="ConnectError"):
            list(there.stream(user("hi")))


def test_a_stream_comes_in_parts_and_is_not_begun_again():
    with misbehaving(None, "stream cut") as seen, endpoint(seen) as there:
        pieces = list(there.stream(user("hi")))
        assert [p.text for p in pieces if p.text] == ["a", "0"] and collected(pieces, 1).usage == Usage(10, 3)
        heard = []
        with pytest.raises(EndpointError, match="a stream of it was cut"):
            heard.extend(piece.text for piece in there.stream(user("hi")))
        assert there.account.calls == 1
    assert seen.bodies[0]["stream"] and seen.bodies[0]["stream_options"] == {"include_usage": True}
    assert len(seen.bodies) == 2


@pytest.mark.parametrize("limit", [1, 3])
def test_no_more_calls_are_under_way_than_allowed(limit):
    with misbehaving(seconds=0.03) as seen, endpoint(seen, concurrency=limit) as there:
        streams = [threading.Thread(target=lambda: list(there.stream(user("s")))) for _ in range(4)]
        for thread in streams:
            thread.start()
        answers = there.answers([user(str(i)) for i in range(12)])
        for thread in streams:
            thread.join()
        assert len(answers) == 12 and seen.peak == limit and there.account.calls == 16


def test_the_account_is_exact():
    prices, numbers = Prices(0.1, 0.7), range(20)
    with misbehaving(*["dropped"] * 3) as seen, endpoint(seen, prices=prices) as there:
        answers = there.answers([user(str(i)) for i in numbers], Request(n=2))
        account = there.account
    prompt, said = sum(a.usage.prompt for a in answers), sum(a.usage.said for a in answers)
    assert (account.calls, account.retries, account.prompt, account.said) == (20, 3, prompt, said) and said == 60
    assert account.cost == pytest.approx((0.1 * prompt + 0.7 * said) / 1e6, rel=1e-12) and account.untold == 0


def test_answers_come_in_the_order_of_the_questions():
    with misbehaving(("slow", 0.3)) as seen, endpoint(seen) as there:
        answers = there.answers([user(str(i)) for i in range(6)])
    said = {body["messages"][0]["content"]: f"a{i}" for i, body in enumerate(seen.bodies)}
    assert [answer.text for answer in answers] == [said[str(i)] for i in range(6)]


def test_other_event_loops_may_ask_too():
    async def both(there):
        (answer,) = await there.answers_soon([user("hi")])
        return answer, [piece async for piece in there.stream_soon(user("hi"))]

    with misbehaving(("slow", 0.0)) as seen, endpoint(seen) as there:
        answer, pieces = asyncio.run(both(there))
        assert answer.text == "a0" and collected(pieces, 1).text == "a1"


def test_answers_are_replayed_without_a_server(tmp_path):
    request, talks = Request(seed=1), [user("a"), user("b"), user("a")]
    with misbehaving() as seen, endpoint(seen, cache=tmp_path, prices=Prices(1.0, 1.0)) as there:
        first = there.answers(talks, request)
        streamed = collected(there.stream(user("c"), request), 1)
        assert len(seen.bodies) == 4 and first[0] != first[2], "the third is a question of its own"
        there.answers([user("a")], Request(seed=2))
        assert len(seen.bodies) == 5
    with endpoint(seen, cache=tmp_path, prices=Prices(1.0, 1.0), attempts=1) as there:
        assert there.answers(talks, request) == first
        assert collected(there.stream(user("c"), request), 1) == streamed == there.answers([user("c")], request)[0]
        assert there.account == Account(replayed=5, cost=0.0)
        with pytest.raises(EndpointError, match="ConnectError"):
            there.answers([user("a")], Request(seed=3))


def test_a_damaged_entry_counts_as_none(tmp_path):
    replay = Replay(tmp_path)
    replay.keep({"a": 1}, {"b": 2})
    assert replay.found({"a": 1}) == {"b": 2} and replay.found({"a": 2}) is None
    for damage in (b"", b'{"asked": {"a": 1}, "respon', b"[]", b'{"asked": {"a": 2}, "response": {}}', b"\xff"):
        replay.path({"a": 1}).write_bytes(damage)
        assert replay.found({"a": 1}) is None
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write answers"):
        Replay(tmp_path / "file")


WRITER = """
import sys
from thespis.language.replay import Replay
replay, i = Replay(sys.argv[1]), 0
while True:
    replay.keep({"number": i % 7}, {"text": "x" * 500_000, "end": True})
    i += 1
    print(i, flush=True)
"""


def test_a_kill_leaves_whole_entries_or_none(tmp_path):
    whole = {"text": "x" * 500_000, "end": True}
    for i in range(4):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        writer.stdout.readline()
        time.sleep(0.02 + 0.007 * i)
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        found = [Replay(tmp_path).found({"number": n}) for n in range(7)]
        assert whole in found and all(entry in (None, whole) for entry in found)
        assert all(json.loads(path.read_bytes())["response"] == whole for path in tmp_path.glob("*/*.json"))
    left = list(tmp_path.glob("*/.*.part"))
    for part in left:
        os.utime(part, (0, 0))
    Replay(tmp_path)
    assert not list(tmp_path.glob("*/.*.part"))


def test_the_key_is_seen_by_the_server_alone(tmp_path, monkeypatch, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("SOME_KEY", f" {KEY}\n")
    echo = json.dumps({"error": {"message": f"Incorrect key {KEY} given"}})
    told = json.dumps({"choices": [{"index": 0, "message": {"content": f"it is {KEY}"}, "finish_reason": "stop"}]})
    said = []
    with misbehaving((401, {}, echo), (200, {}, told), (400, {}, f"{KEY}!")) as seen:
        there = endpoint(seen, key_variable="SOME_KEY", cache=tmp_path)
        with there:
            for _ in range(3):
                try:
                    there.answers([user("hi")], Request(seed=len(said)))
                except EndpointError as error:
                    said.append(f"{error!r} {error.__cause__!r} {error.__dict__}")
                said.append(repr(there))
            said += [repr(vars(there)), repr(there.service), repr(there.account)]
            assert seen.keys == [f"Bearer {KEY}"] * 3
    files = [path.read_text() for path in tmp_path.rglob("*.json")]
    assert len(files) == 1 and "***" in "".join(said)
    for text in (*said, *files, caplog.text, *capfd.readouterr()):
        assert KEY not in text
    assert "POST" in caplog.text, "something is logged: else this test shows nothing"


def test_keys_and_addresses_that_cannot_work_are_refused(monkeypatch):
    monkeypatch.delenv("NO_KEY", raising=False)
    monkeypatch.setenv("BAD_KEY", f"{KEY}\nX-More: 1")
    for variable in ("NO_KEY", "BAD_KEY"):
        with pytest.raises(UserError, match=f"the variable {variable} does not hold a key") as error:
            Endpoint("http://127.0.0.1/v1", "some", key_variable=variable)
        assert KEY not in str(error.value)
    for url in ("127.0.0.1:80", "ftp://127.0.0.1", "http://"):
        with pytest.raises(UserError, match="must be like"):
            Endpoint(url, "some")
    for url in (f"http://me:{KEY}@127.0.0.1/v1", f"http://127.0.0.1/v1?key={KEY}"):
        with pytest.raises(UserError, match="no secrets") as error:
            Endpoint(url, "some")
        assert KEY not in str(error.value)
    with pytest.raises(UserError, match="1 or more"):
        Endpoint("http://127.0.0.1/v1", "some", attempts=0)
    with Endpoint("http://127.0.0.1/v1", "some") as there, pytest.raises(Refused, match="needs messages"):
        there.answers([[]])


def test_closing_ends_what_is_under_way():
    before = set(threading.enumerate())
    with misbehaving(("slow", 1.0)) as seen:
        there = endpoint(seen)
        threading.Timer(0.2, there.close).start()
        begin = time.monotonic()
        with pytest.raises(EndpointError, match="is closed"):
            there.answers([user("hi")])
        assert time.monotonic() - begin < 0.9
        for ask in (lambda: there.answers([user("hi")]), lambda: list(there.stream(user("hi")))):
            with pytest.raises(EndpointError, match="is closed"):
                ask()
        there.close()
    left = [t for t in set(threading.enumerate()) - before if t.name == "endpoint"]
    for thread in left:
        thread.join(5.0)
    assert not [thread for thread in left if thread.is_alive()]
