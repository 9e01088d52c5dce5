"""The server over real sockets: what it says is what the engine says, and what is wrong with a request is told."""

from __future__ import annotations

import concurrent.futures
import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from language.talkers import parts, talker, user

from thespis.core.errors import UserError
from thespis.language.endpoint import Endpoint
from thespis.language.engine import Request, collected
from thespis.language.local import Local
from thespis.serving.door import LARGEST
from thespis.serving.run import serving

KEY = "sk-of-the-server"
MODEL, TOKENIZER = parts()

# Most answers here are 17 to 32 tokens long, which are the same few programs for all of them.


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, list[str]]]:
    lines: list[str] = []
    with serving(talker(), "tiny", length=24, window=0.02, log=lines.append) as url:
        yield url, lines


@pytest.fixture
def url(served) -> str:
    return served[0]


def posted(url: str, body: Any, path: str = "/chat/completions", **more: Any) -> httpx.Response:
    text = body if isinstance(body, str | bytes) else json.dumps(body)
    return httpx.post(url + path, content=text, timeout=60, **more)


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": user(text), **more}


def streamed(url: str, body: dict[str, Any], path: str = "/chat/completions") -> list[dict[str, Any]]:
    with httpx.stream("POST", url + path, json=body | {"stream": True}, timeout=60) as response:
        assert response.status_code == 200 and response.headers["content-type"].startswith("text/event-stream")
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


@pytest.mark.parametrize(
    "request_",
    [Request(0.0, length=20), Request(seed=7, length=20, n=2), Request(0.7, 0.9, 12, 0.05, 30, ("e", "12"), 3, 2)],
    ids=["greedy", "seeded", "restricted"],
)
def test_through_the_endpoint_it_says_what_the_engine_says(url, request_):
    talks = [user("hello"), user("where is the key?"), [{"role": "system", "content": "be"}, *user("x")]]
    wanted = talker().answers(talks, request_)
    with Endpoint(url, "tiny", extra={"logprobs": True, "return_token_ids": True}) as there:
        assert there.answers(talks, request_) == wanted
        assert collected(there.stream(talks[1], request_), request_.n) == wanted[1]
        account = there.account
    assert account.prompt == sum(a.usage.prompt for a in wanted) + wanted[1].usage.prompt
    assert account.said == sum(a.usage.said for a in wanted) + wanted[1].usage.said


def test_the_form_of_an_answer(url):
    found = posted(url, chat("hi", seed=1, max_completion_tokens=20, logprobs=True, return_token_ids=True)).json()
    (choice,) = found["choices"]
    assert found["object"] == "chat.completion" and found["model"] == "tiny" and found["id"].startswith("chatcmpl-")
    assert abs(found["created"] - time.time()) < 60
    assert choice["message"]["role"] == "assistant" and choice["finish_reason"] == "length"
    prompt = TOKENIZER.encode("user:\nhi<end>\nassistant:\n")
    assert found["prompt_token_ids"] == prompt
    assert found["usage"] == {"prompt_tokens": len(prompt), "completion_tokens": 20, "total_tokens": len(prompt) + 20}
    words = [each["token"] for each in choice["logprobs"]["content"]]
    assert words == [TOKENIZER.decode([t]) for t in choice["token_ids"]] and len(words) == 20
    assert all(
        each["logprob"] <= 0 and each["bytes"] == list(each["token"].encode()) for each in choice["logprobs"]["content"]
    )
    plain = posted(url, chat("hi", seed=1, max_tokens=20)).json()["choices"][0]
    assert plain["message"] == choice["message"] and plain["logprobs"] is None and "token_ids" not in plain


def test_a_seed_says_the_same_in_any_company_and_none_does_not(url):
    bodies = [chat(f"{'z' * (i % 5)}", seed=i, temperature=0.1 * i) for i in range(8)] + [chat("same", seed=9)] * 4
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        found = list(pool.map(lambda body: posted(url, body).json()["choices"][0]["message"]["content"], bodies))
    alone = [posted(url, body).json()["choices"][0]["message"]["content"] for body in bodies[:9]]
    assert found[:9] == alone and len(set(found[8:])) == 1
    free = {posted(url, chat("same")).json()["choices"][0]["message"]["content"] for _ in range(2)}
    assert len(free) == 2


def test_a_stream_adds_up_to_the_whole(url):
    body = chat("tell me", seed=2, n=2, max_tokens=30, stop=["e"])
    whole = posted(url, body).json()
    events = streamed(url, body | {"stream_options": {"include_usage": True}})
    assert {e["object"] for e in events} == {"chat.completion.chunk"} and len({e["id"] for e in events}) == 1
    assert events[-1]["choices"] == [] and events[-1]["usage"] == whole["usage"]
    for i, choice in enumerate(whole["choices"]):
        own = [c for e in events for c in e["choices"] if c["index"] == i]
        assert "".join(c["delta"].get("content", "") for c in own) == choice["message"]["content"]
        assert own[0]["delta"]["role"] == "assistant" and own[-1]["finish_reason"] == choice["finish_reason"]
        assert all(c["finish_reason"] is None and "role" not in c["delta"] for c in own[1:-1])
    assert "usage" not in streamed(url, body)[-1]


def test_plain_completions(url):
    body = {"model": "tiny", "prompt": "user:\nhi<end>\nassistant:\n", "seed": 3, "max_tokens": 20}
    found = posted(url, body, "/completions").json()
    wanted = posted(url, chat("hi", seed=3, max_tokens=20)).json()
    assert found["object"] == "text_completion"
    assert found["choices"][0]["text"] == wanted["choices"][0]["message"]["content"]
    ids = posted(url, body | {"prompt": TOKENIZER.encode(body["prompt"])}, "/completions").json()
    assert ids["choices"] == found["choices"] and ids["usage"] == found["usage"]
    events = streamed(url, body, "/completions")
    assert "".join(e["choices"][0]["text"] for e in events) == found["choices"][0]["text"]


def test_an_answer_that_nobody_limits_has_the_room_there_is(url):
    body = chat("a" * 220)  # with the template 239 of 256 tokens
    assert posted(url, body).json()["usage"]["total_tokens"] == 256
    assert posted(url, body | {"max_tokens": 24}).status_code == 400


def test_models_and_health(url):
    listed = httpx.get(f"{url}/models").json()
    assert [model["id"] for model in listed["data"]] == ["tiny"] and listed["object"] == "list"
    assert httpx.get(f"{url}/models/tiny").json() == listed["data"][0]
    assert httpx.get(f"{url}/models/other").status_code == 404
    assert httpx.get(url.removesuffix("/v1") + "/health").json() == {"status": "ok"}


WRONG: list[tuple[Any, int, str | None, str]] = [
    ("{bad", 400, None, "is not JSON"),
    (b"\xff\xfe", 400, None, "is not JSON"),
    ("[" * 100_000, 400, None, "is not JSON"),
    ([], 400, None, "must be a JSON object"),
    ({"messages": user("a")}, 400, "model", "model is missing"),
    ({"model": 3, "messages": user("a")}, 400, "model", "must be a string"),
    ({"model": "other", "messages": user("a")}, 404, "model", "there is no model 'other' here"),
    ({"model": "tiny"}, 400, "messages", "messages is missing"),
    ({"model": "tiny", "messages": []}, 400, "messages", "not empty"),
    ({"model": "tiny", "messages": ["a"]}, 400, "messages[0]", "an object with a role"),
    ({"model": "tiny", "messages": [{"role": "user"}]}, 400, "messages[0]", "must be a string"),
    ({"model": "tiny", "messages": [{"role": "a", "content": [{"type": "b"}]}]}, 400, "messages[0]", "type text"),
    (chat("a" * 300), 400, "messages", "more than this model's 256"),
    (chat("a", max_tokens=10_000), 400, "messages", "more than this model's 256"),
    (chat("a", temperature=-1), 400, "temperature", "temperature is -1.0"),
    (chat("a", temperature="hot"), 400, "temperature", "must be a number"),
    ('{"model": "tiny", "messages": [{"role": "user", "content": "a"}], "top_p": NaN}', 400, "top_p", "top_p is nan"),
    (chat("a", max_tokens=0), 400, "max_tokens", "max_tokens is 0"),
    (chat("a", n=True), 400, "n", "a whole number"),
    (chat("a", n=1000), 400, "n", "from 1 to 128"),
    (chat("a", seed=1.5), 400, "seed", "a whole number"),
    (chat("a", stop=[""]), 400, "stop", "not empty"),
    (chat("a", stop=3), 400, "stop", "a string, or a list"),
    (chat("a", stream="yes"), 400, "stream", "true or false"),
    (chat("a", stream_options=3), 400, "stream_options", "an object"),
    (chat("a", presence_penalty=0.5), 400, "presence_penalty", "is not supported"),
    (chat("a", tools=[{"type": "function"}]), 400, "tools", "is not supported"),
    (chat("a", beams=3), 400, "beams", "beams is not supported"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "status", "field", "said"), WRONG, ids=[w[3] + str(i) for i, w in enumerate(WRONG)])
def test_what_is_wrong_is_told(url, body, status, field, said):
    response = posted(url, body)
    error = response.json()["error"]
    assert response.status_code == status and said in error["message"] and error["param"] == field
    assert error["type"] and "code" in error


def test_what_asks_for_nothing_is_let_pass(url):
    more = {"presence_penalty": 0, "logit_bias": {}, "user": "me", "tools": [], "top_k": -1, "stop": None, "seed": 1,
            "response_format": {"type": "text"}, "max_tokens": 20}  # fmt: skip
    parted = [{"role": "user", "content": [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]}]
    found = posted(url, chat("", **more) | {"messages": parted}).json()
    assert found["choices"] == posted(url, chat("hi", seed=1, max_tokens=20)).json()["choices"]


@pytest.mark.parametrize(
    ("body", "field"),
    [({"prompt": ["a", "b"]}, "prompt"), ({"prompt": ""}, "prompt"), ({"prompt": [1, -2]}, "prompt"),
     ({"prompt": [1, 10_000]}, "prompt"), ({"prompt": "a", "logprobs": 3}, "logprobs"),
     ({"prompt": "a", "suffix": "b"}, "suffix"), ({"prompt": "a" * 300}, "prompt")],
    ids=str,
)  # fmt: skip
def test_what_is_wrong_with_a_plain_prompt_is_told(url, body, field):
    response = posted(url, {"model": "tiny", **body}, "/completions")
    assert response.status_code == 400 and response.json()["error"]["param"] == field


def test_other_paths_methods_and_sizes(url):
    assert httpx.get(f"{url}/chat/completions").status_code == 405
    assert httpx.get(f"{url}/embeddings").json()["error"]["type"] == "not_found_error"
    assert posted(url, chat("a" * (LARGEST + 1))).status_code == 413
    parts_ = (b"x" * 2**20 for _ in range(LARGEST // 2**20 + 1))
    assert (
        "bytes at most" in httpx.post(f"{url}/chat/completions", content=parts_, timeout=60).json()["error"]["message"]
    )


def test_a_key_is_asked_for_and_the_log_has_no_texts(monkeypatch):
    lines: list[str] = []
    with serving(talker(), "tiny", key=KEY, log=lines.append) as url:
        for header in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": KEY},
            {"Authorization": "Bearer ü".encode()},
        ):
            response = posted(url, chat("hush"), headers=header)
            assert response.status_code == 401 and response.json()["error"]["code"] == "invalid_api_key"
            assert response.headers["www-authenticate"] == "Bearer"
        assert httpx.get(f"{url}/models").status_code == 401
        assert httpx.get(url.removesuffix("/v1") + "/health").status_code == 200
        monkeypatch.setenv("THE_KEY", KEY)
        with Endpoint(url, "tiny", key_variable="THE_KEY") as there:
            (answer,) = there.answers([user("hush")], Request(length=20))
        for path in ("/models?key=hush", "/hush%0A"):
            httpx.get(url + path, headers={"Authorization": f"Bearer {KEY}"})
    logged = "\n".join(lines)
    assert "POST /v1/chat/completions 200" in logged
    assert f", {answer.usage.prompt} + {answer.usage.said} tokens" in logged and answer.usage.said > 0
    assert KEY not in logged and answer.text not in logged and "key=" not in logged
    assert len(lines) == 9 and logged.count(" 401 ") == 5 and "\n\n" not in logged


class Slow(Local):
    """An engine that takes its time, and counts what it says."""

    def spoken(self, asks, wanted=lambda i: True):
        for i, piece in super().spoken(asks, wanted):
            time.sleep(0.1)
            said[asks[i].request.seed] += len(piece.tokens)
            yield i, piece


said: Counter[int] = Counter()


def test_who_leaves_is_not_waited_for():
    with serving(Slow(MODEL, TOKENIZER, longest=256, rows=4), "tiny") as url:
        body = chat("a", max_tokens=200, temperature=0.0)  # it says all 200
        with httpx.stream("POST", f"{url}/chat/completions", json=body | {"stream": True, "seed": 1}) as response:
            next(response.iter_lines())
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}/chat/completions", json=body | {"seed": 2}, timeout=0.3)
        posted(url, chat("b", max_tokens=20, seed=3))
    assert said[3] == 20 and 0 < said[1] < 150 and said[2] < 150


class Broken(Local):
    """An engine whose model has gone wrong."""

    def spoken(self, asks, wanted=lambda i: True):
        if any(ask.request.seed == 13 for ask in asks):
            raise RuntimeError("out of memory, with a text in it")
        yield from super().spoken(asks, wanted)


def test_a_failure_is_an_answer_and_the_next_one_is_served():
    lines: list[str] = []
    with serving(Broken(MODEL, TOKENIZER, longest=256, rows=4), "tiny", log=lines.append) as url:
        response = posted(url, chat("a", seed=13))
        assert response.status_code == 500 and response.json()["error"]["message"] == "the engine failed"
        with httpx.stream("POST", f"{url}/chat/completions", json=chat("a", seed=13, stream=True)) as stream:
            assert '"the engine failed"' in stream.read().decode() and "[DONE]" not in stream.text
        assert posted(url, chat("a", seed=1, max_tokens=20)).status_code == 200


def test_a_port_that_is_taken_is_one_line(url):
    port = int(url.split(":")[2].removesuffix("/v1"))
    with pytest.raises(UserError, match=f"cannot listen at 127.0.0.1:{port}"), serving(talker(), port=port):
        pass


def test_a_full_queue_is_refused_and_asked_again_later():
    """One request under way fills it; a client that heeds Retry-After gets its answer in the end."""
    long = chat("a", seed=13, max_tokens=200, n=24, stream=True)
    with serving(talker(), "tiny", limit=1) as url:
        with httpx.stream("POST", f"{url}/chat/completions", json=long, timeout=60) as one:
            lines = one.iter_lines()  # kept: letting go of it hangs up
            next(lines)
            refused = posted(url, chat("b", max_tokens=4))
            assert refused.status_code == 429 and refused.headers["retry-after"] == "1"
            assert refused.json()["error"]["code"] == "queue_full"
        with Endpoint(url, "tiny") as there:
            found = there.answers([user(text) for text in "abcd"], Request(0.0, length=20))
        assert [len(answer.replies) for answer in found] == [1] * 4
