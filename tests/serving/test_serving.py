"""The HTTP server over real sockets: responses, streams and logs, against the engine's, and errors of requests."""

from __future__ import annotations

import concurrent.futures
import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from language.small_lm import model_and_tokenizer, small_engine, user

from thespis.core.errors import UserError
from thespis.language.endpoint import EndpointEngine
from thespis.language.engine import GenerationConfig, join_chunks
from thespis.language.local_engine import LocalEngine
from thespis.serving.auth import MAX_BODY_BYTES
from thespis.serving.server import background_server

KEY = "sk-of-the-server"
MODEL, TOKENIZER = model_and_tokenizer()
BE, YES = [{"role": "system", "content": "be"}], [{"role": "assistant", "content": "yes"}]

# Most responses have 17 to 32 tokens, for which the same few programs are compiled.


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, list[str]]]:
    """The address of a server with a tiny model, and the lines of its log."""
    lines: list[str] = []
    with background_server(small_engine(), "tiny", max_tokens=24, batch_window=0.02, log=lines.append) as url:
        yield url, lines


@pytest.fixture
def url(server) -> str:
    return server[0]


def post(url: str, body: Any, path: str = "/chat/completions", **more: Any) -> httpx.Response:
    text = body if isinstance(body, str | bytes) else json.dumps(body)
    return httpx.post(url + path, content=text, timeout=60, **more)


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": user(text), **more}


def stream_events(url: str, body: dict[str, Any], path: str = "/chat/completions") -> list[dict[str, Any]]:
    with httpx.stream("POST", url + path, json=body | {"stream": True}, timeout=60) as response:
        assert response.status_code == 200 and response.headers["content-type"].startswith("text/event-stream")
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


@pytest.mark.parametrize(
    "request_",
    [
        GenerationConfig(0.0, max_tokens=20),
        GenerationConfig(seed=7, max_tokens=20, n=2),
        GenerationConfig(0.7, 0.9, 12, 0.05, 30, ("e", "12"), 3, 2),
    ],
    ids=["greedy", "seeded", "restricted"],
)
def test_responses_over_http_equal_those_of_the_engine(url, request_):
    dialogues = [user("hello"), user("where is the key?"), [{"role": "system", "content": "be"}, *user("x")]]
    expected = small_engine().generate(dialogues, request_)
    with EndpointEngine(url, "tiny", extra_body={"logprobs": True, "return_token_ids": True}) as engine:
        assert engine.generate(dialogues, request_) == expected
        assert join_chunks(engine.stream(dialogues[1], request_), request_.n) == expected[1]
        usage = engine.usage
    assert usage.prompt_tokens == sum(a.usage.prompt_tokens for a in expected) + expected[1].usage.prompt_tokens
    assert (
        usage.completion_tokens
        == sum(a.usage.completion_tokens for a in expected) + expected[1].usage.completion_tokens
    )


def test_the_format_of_a_chat_completion(url):
    response = post(url, chat("hi", seed=1, max_completion_tokens=20, logprobs=True, return_token_ids=True)).json()
    (choice,) = response["choices"]
    assert (
        response["object"] == "chat.completion"
        and response["model"] == "tiny"
        and response["id"].startswith("chatcmpl-")
    )
    assert abs(response["created"] - time.time()) < 60
    assert choice["message"]["role"] == "assistant" and choice["finish_reason"] == "length"
    prompt = TOKENIZER.encode("user:\nhi<end>\nassistant:\n")
    assert response["prompt_token_ids"] == prompt
    assert response["usage"] == {
        "prompt_tokens": len(prompt),
        "completion_tokens": 20,
        "total_tokens": len(prompt) + 20,
    }
    words = [entry["token"] for entry in choice["logprobs"]["content"]]
    assert words == [TOKENIZER.decode([t]) for t in choice["token_ids"]] and len(words) == 20
    assert all(
        entry["logprob"] <= 0 and entry["bytes"] == list(entry["token"].encode())
        for entry in choice["logprobs"]["content"]
    )
    plain = post(url, chat("hi", seed=1, max_tokens=20)).json()["choices"][0]
    assert plain["message"] == choice["message"] and plain["logprobs"] is None and "token_ids" not in plain


@pytest.mark.long
def test_a_seeded_response_does_not_depend_on_other_requests(url):
    bodies = [chat(f"{'z' * (i % 5)}", seed=i, temperature=0.1 * i) for i in range(8)] + [chat("same", seed=9)] * 4
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        texts = list(pool.map(lambda body: post(url, body).json()["choices"][0]["message"]["content"], bodies))
    alone = [post(url, body).json()["choices"][0]["message"]["content"] for body in bodies[:9]]
    assert texts[:9] == alone and len(set(texts[8:])) == 1
    unseeded = {post(url, chat("same")).json()["choices"][0]["message"]["content"] for _ in range(2)}
    assert len(unseeded) == 2


def test_a_stream_adds_up_to_the_whole_response(url):
    body = chat("tell me", seed=2, n=2, max_tokens=30, stop=["e"])
    whole = post(url, body).json()
    events = stream_events(url, body | {"stream_options": {"include_usage": True}})
    assert {e["object"] for e in events} == {"chat.completion.chunk"} and len({e["id"] for e in events}) == 1
    assert events[-1]["choices"] == [] and events[-1]["usage"] == whole["usage"]
    for i, choice in enumerate(whole["choices"]):
        choices = [c for e in events for c in e["choices"] if c["index"] == i]
        assert "".join(c["delta"].get("content", "") for c in choices) == choice["message"]["content"]
        assert choices[0]["delta"]["role"] == "assistant" and choices[-1]["finish_reason"] == choice["finish_reason"]
        assert all(c["finish_reason"] is None and "role" not in c["delta"] for c in choices[1:-1])
    assert "usage" not in stream_events(url, body)[-1]


def test_text_completions(url):
    body = {"model": "tiny", "prompt": "user:\nhi<end>\nassistant:\n", "seed": 3, "max_tokens": 20}
    response = post(url, body, "/completions").json()
    expected = post(url, chat("hi", seed=3, max_tokens=20)).json()
    assert response["object"] == "text_completion"
    assert response["choices"][0]["text"] == expected["choices"][0]["message"]["content"]
    by_tokens = post(url, body | {"prompt": TOKENIZER.encode(body["prompt"])}, "/completions").json()
    assert by_tokens["choices"] == response["choices"] and by_tokens["usage"] == response["usage"]
    events = stream_events(url, body, "/completions")
    assert "".join(e["choices"][0]["text"] for e in events) == response["choices"][0]["text"]


@pytest.mark.long
def test_top_log_probs_of_a_chat_completion(url):
    """Greedy: those of the model; sampled: those of the distribution that was sampled, without what it leaves out."""
    body = chat("hi", temperature=0.0, max_tokens=20, logprobs=True, return_token_ids=True)
    (plain,) = post(url, body).json()["choices"]
    whole = post(url, body | {"top_logprobs": 3}).json()
    (choice,) = whole["choices"]
    assert choice["message"] == plain["message"] and all(x["top_logprobs"] == [] for x in plain["logprobs"]["content"])
    for entry, old in zip(choice["logprobs"]["content"], plain["logprobs"]["content"], strict=True):
        top = entry["top_logprobs"]
        assert len(top) == 3 and top[0] == {name: entry[name] for name in ("token", "logprob", "bytes")}
        assert -20 < top[2]["logprob"] <= top[1]["logprob"] <= top[0]["logprob"] < -1e-3
        assert entry["logprob"] == pytest.approx(old["logprob"], abs=1e-5)
    events = stream_events(url, body | {"top_logprobs": 3})
    streamed = [x for e in events for x in (e["choices"][0]["logprobs"] or {"content": []})["content"]]
    assert streamed == choice["logprobs"]["content"]
    sampled = chat("hi", seed=1, max_tokens=20, top_k=2, logprobs=True, top_logprobs=20)
    for entry in post(url, sampled).json()["choices"][0]["logprobs"]["content"]:
        top = [(x["token"], x["logprob"]) for x in entry["top_logprobs"]]
        assert len(top) == 2 and (entry["token"], entry["logprob"]) in top
        assert sum(np.exp([log_prob for _, log_prob in top])) == pytest.approx(1, abs=1e-4)


@pytest.mark.long
def test_log_probs_of_a_text_completion(url):
    body = {"model": "tiny", "prompt": "where?", "seed": 3, "max_tokens": 20, "return_token_ids": True}
    (choice,) = post(url, body | {"logprobs": 2}, "/completions").json()["choices"]
    fields = choice["logprobs"]
    assert fields["tokens"] == [TOKENIZER.decode([t]) for t in choice["token_ids"]]
    assert len(fields["token_logprobs"]) == len(fields["top_logprobs"]) == 20 and max(fields["token_logprobs"]) < 0
    assert all(1 <= len(top) <= 2 for top in fields["top_logprobs"])
    assert fields["text_offset"] == [len("".join(fields["tokens"][:i])) for i in range(20)]
    parts = [e["choices"][0]["logprobs"] for e in stream_events(url, body | {"logprobs": 2}, "/completions")]
    assert {name: [x for part in parts for x in part[name]] for name in fields} == fields
    (choice,) = post(url, body | {"logprobs": 0}, "/completions").json()["choices"]
    assert choice["logprobs"]["tokens"] == fields["tokens"] and choice["logprobs"]["top_logprobs"] is None


def test_a_list_of_prompts_is_completed_in_order(url):
    body = {"model": "tiny", "seed": 3, "max_tokens": 20, "n": 2, "return_token_ids": True}
    prompts = ["hello", "where is the key?", "hello"]
    alone = [post(url, body | {"prompt": prompt}, "/completions").json() for prompt in prompts]
    together = post(url, body | {"prompt": prompts}, "/completions").json()
    assert [choice["index"] for choice in together["choices"]] == [0, 1, 2, 3, 4, 5]
    assert [c["text"] for c in together["choices"]] == [c["text"] for a in alone for c in a["choices"]]
    assert together["usage"] == {name: sum(a["usage"][name] for a in alone) for name in together["usage"]}
    assert [c["prompt_token_ids"] for c in together["choices"]] == [
        TOKENIZER.encode(prompt) for prompt in prompts for _ in range(2)
    ]
    events = stream_events(url, body | {"prompt": [TOKENIZER.encode(p) for p in prompts]}, "/completions")
    for choice in together["choices"]:
        texts = [c["text"] for e in events for c in e["choices"] if c["index"] == choice["index"]]
        assert "".join(texts) == choice["text"]


@pytest.mark.long
def test_a_response_without_limit_fills_the_context(url):
    body = chat("a" * 220)  # with the template 239 of 256 tokens
    totals = [post(url, body | {"seed": seed}).json()["usage"]["total_tokens"] for seed in range(8)]
    assert max(totals) == 256  # a response may also end by itself
    assert post(url, body | {"max_tokens": 24}).status_code == 400


def test_models_and_health(url):
    models = httpx.get(f"{url}/models").json()
    assert [model["id"] for model in models["data"]] == ["tiny"] and models["object"] == "list"
    assert httpx.get(f"{url}/models/tiny").json() == models["data"][0]
    assert httpx.get(f"{url}/models/other").status_code == 404
    assert httpx.get(url.removesuffix("/v1") + "/health").json() == {"status": "ok"}


WRONG: list[tuple[Any, int, str | None, str]] = [
    ("{bad", 400, None, "is not JSON"),
    (b"\xff\xfe", 400, None, "is not JSON"),
    ("[" * 100_000, 400, None, "is not JSON"),
    ([], 400, None, "must be a JSON object"),
    ({"messages": user("a")}, 400, "model", "model is missing"),
    ({"model": 3, "messages": user("a")}, 400, "model", "must be a string"),
    ({"model": "other", "messages": user("a")}, 404, "model", "there is no model 'other'"),
    ({"model": "tiny"}, 400, "messages", "messages is missing"),
    ({"model": "tiny", "messages": []}, 400, "messages", "not empty"),
    ({"model": "tiny", "messages": ["a"]}, 400, "messages[0]", "an object with a role"),
    ({"model": "tiny", "messages": [{"role": "user"}]}, 400, "messages[0]", "must be a string"),
    ({"model": "tiny", "messages": [{"role": "a", "content": [{"type": "b"}]}]}, 400, "messages[0]", "type text"),
    ({"model": "tiny", "messages": [*user("a"), {"role": "b", "content": ""}]}, 400, "messages[1]", "roles are system"),
    ({"model": "tiny", "messages": [*user("a"), *BE, *user("a")]}, 400, "messages[1]", "system messages come first"),
    ({"model": "tiny", "messages": [*YES, *user("a")]}, 400, "messages[0]", "is the first: there is no prompt"),
    ({"model": "tiny", "messages": [*user("a"), *YES, *YES]}, 400, "messages[2]", "after the role assistant"),
    ({"model": "tiny", "messages": [*user("a"), *YES]}, 400, "messages[1]", "is the last: end with a prompt"),
    ({"model": "tiny", "messages": [{**YES[0], "tool_calls": [{}]}]}, 400, "messages[0]", ".tool_calls is not supp"),
    ({"model": "tiny", "messages": [{"role": "user", "content": "a", "name": 3}]}, 400, "messages[0]", "a string"),
    ({"model": "tiny", "messages": user("a") * 300}, 400, "messages", "300 entries, which is more than this model's"),
    ('{"model": "tiny", "messages": [{"role": "user", "content": "\\ud800"}]}', 400, None, "a lone surrogate"),
    ('{"model": "\\udfff", "messages": []}', 400, None, "a lone surrogate"),
    (b'{"model": "\xed\xa0\x80", "messages": []}', 400, None, "is not JSON"),
    (chat("a" * 300), 400, "messages", "more than this model's 256"),
    (chat("a" * 100_000), 400, "messages", "100000 characters is more than this model's 256"),
    (chat("a", max_tokens=10_000), 400, "messages", "more than this model's 256"),
    (chat("a", temperature=-1), 400, "temperature", "temperature is -1.0"),
    (chat("a", temperature="hot"), 400, "temperature", "must be a number"),
    (chat("a", temperature=10**400), 400, "temperature", "is too large"),
    (chat("a", logprobs=3), 400, "logprobs", "true or false"),
    (chat("a", logprobs=True, top_logprobs=21), 400, "top_logprobs", "from 0 to 20"),
    (chat("a", top_logprobs=2), 400, "top_logprobs", "needs logprobs: true"),
    (chat("a", response_format={"type": "xml"}), 400, "response_format", "must be text, json_object or json_schema"),
    (chat("a", response_format={"type": "json_schema"}), 400, "response_format", "schema must be a JSON schema"),
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
]


@pytest.mark.parametrize(
    ("body", "status", "field", "message"), WRONG, ids=[w[3] + str(i) for i, w in enumerate(WRONG)]
)
def test_invalid_requests_are_refused(url, body, status, field, message):
    response = post(url, body)
    error = response.json()["error"]
    assert response.status_code == status and message in error["message"] and error["param"] == field
    assert error["type"] and "code" in error


def test_unsupported_fields_without_effect_are_accepted(url):
    options = {
        "presence_penalty": 0,
        "logit_bias": {},
        "user": "me",
        "tools": [],
        "top_k": -1,
        "stop": None,
        "seed": 1,
        "response_format": {"type": "text"},
        "max_tokens": 20,
    }
    messages = [{"role": "user", "content": [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]}]
    response = post(url, chat("", **options) | {"messages": messages}).json()
    assert response["choices"] == post(url, chat("hi", seed=1, max_tokens=20)).json()["choices"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"prompt": ["a", 3]}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt"),
        ({"prompt": ["a"] * 129}, "prompt"),
        ({"prompt": [[1], [2, 10_000]]}, "prompt"),
        ({"prompt": [1] * 300}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": [1, -2]}, "prompt"),
        ({"prompt": [1, 10_000]}, "prompt"),
        ({"prompt": "a", "logprobs": 21}, "logprobs"),
        ({"prompt": "a", "logprobs": True}, "logprobs"),
        ({"prompt": "a", "top_logprobs": 2}, "top_logprobs"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
        ({"prompt": "a" * 300}, "prompt"),
    ],
    ids=str,
)
def test_invalid_completion_requests_are_refused(url, body, field):
    response = post(url, {"model": "tiny", **body}, "/completions")
    assert response.status_code == 400 and response.json()["error"]["param"] == field


def test_other_paths_methods_and_sizes(url):
    assert httpx.get(f"{url}/chat/completions").status_code == 405
    assert httpx.get(f"{url}/embeddings").json()["error"]["type"] == "not_found_error"
    assert post(url, chat("a" * (MAX_BODY_BYTES + 1))).status_code == 413
    parts_ = (b"x" * 2**20 for _ in range(MAX_BODY_BYTES // 2**20 + 1))
    assert "at most" in httpx.post(f"{url}/chat/completions", content=parts_, timeout=60).json()["error"]["message"]


def test_an_api_key_is_required_and_the_log_contains_no_texts(monkeypatch):
    lines: list[str] = []
    with background_server(small_engine(), "tiny", api_key=KEY, log=lines.append) as url:
        for header in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": KEY},
            {"Authorization": "Bearer ü".encode()},
        ):
            response = post(url, chat("hush"), headers=header)
            assert response.status_code == 401 and response.json()["error"]["code"] == "invalid_api_key"
            assert response.headers["www-authenticate"] == "Bearer"
        assert httpx.get(f"{url}/models").status_code == 401
        assert httpx.get(url.removesuffix("/v1") + "/health").status_code == 200
        monkeypatch.setenv("THE_KEY", KEY)
        with EndpointEngine(url, "tiny", key_variable="THE_KEY") as engine:
            (answer,) = engine.generate([user("hush")], GenerationConfig(max_tokens=20, seed=1))
        for path in ("/models?key=hush", "/hush%0A"):
            httpx.get(url + path, headers={"Authorization": f"Bearer {KEY}"})
    log = "\n".join(lines)
    assert "POST /v1/chat/completions 200" in log
    assert (
        f", {answer.usage.prompt_tokens} + {answer.usage.completion_tokens} tokens" in log
        and answer.usage.completion_tokens > 0
    )
    assert len(answer.text) > 3  # a letter would be in any log
    assert KEY not in log and answer.text not in log and "key=" not in log
    assert len(lines) == 9 and log.count(" 401 ") == 5 and "\n\n" not in log


class Slow(LocalEngine):
    """An engine that waits after each piece and counts the tokens that it generates, by seed."""

    def stream_batch(self, prompts, is_active=lambda i: True):
        for i, piece in super().stream_batch(prompts, is_active):
            time.sleep(0.1)
            num_tokens[prompts[i].config.seed] += len(piece.tokens)
            yield i, piece


num_tokens: Counter[int] = Counter()


@pytest.mark.long
def test_requests_of_closed_connections_are_cancelled():
    with background_server(Slow(MODEL, TOKENIZER, max_length=256, batch_size=4), "tiny") as url:
        body = chat("a", max_tokens=200, temperature=0.0)  # it generates all 200 tokens
        with httpx.stream("POST", f"{url}/chat/completions", json=body | {"stream": True, "seed": 1}) as response:
            next(response.iter_lines())
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}/chat/completions", json=body | {"seed": 2}, timeout=0.3)
        post(url, chat("b", max_tokens=20, seed=3))
    assert num_tokens[3] == 20 and 0 < num_tokens[1] < 150 and num_tokens[2] < 150


class Broken(LocalEngine):
    """An engine that raises for seed 13."""

    def stream_batch(self, prompts, is_active=lambda i: True):
        if any(prompt.config.seed == 13 for prompt in prompts):
            raise RuntimeError("out of memory, with a text in it")
        yield from super().stream_batch(prompts, is_active)


def test_an_engine_failure_is_a_500_and_the_next_request_is_served():
    lines: list[str] = []
    with background_server(Broken(MODEL, TOKENIZER, max_length=256, batch_size=4), "tiny", log=lines.append) as url:
        response = post(url, chat("a", seed=13))
        assert response.status_code == 500 and response.json()["error"]["message"] == "the engine failed"
        with httpx.stream("POST", f"{url}/chat/completions", json=chat("a", seed=13, stream=True)) as stream:
            assert '"the engine failed"' in stream.read().decode() and "[DONE]" not in stream.text
        assert post(url, chat("a", seed=1, max_tokens=20)).status_code == 200


def test_a_port_in_use_is_one_line(url):
    port = int(url.split(":")[2].removesuffix("/v1"))
    with (
        pytest.raises(UserError, match=f"cannot listen at 127.0.0.1:{port}"),
        background_server(small_engine(), port=port),
    ):
        pass


@pytest.mark.long
def test_a_full_queue_is_refused_and_retried():
    """One running request fills the queue; a client that waits for Retry-After gets its response."""
    long = chat("a", seed=13, max_tokens=200, n=24, stream=True)
    with background_server(small_engine(), "tiny", max_pending=1) as url:
        with httpx.stream("POST", f"{url}/chat/completions", json=long, timeout=60) as stream:
            lines = stream.iter_lines()  # kept: deleting it closes the connection
            next(lines)
            refused = post(url, chat("b", max_tokens=4))
            assert refused.status_code == 429 and refused.headers["retry-after"] == "1"
            assert refused.json()["error"]["code"] == "queue_full"
        with EndpointEngine(url, "tiny") as engine:
            responses = engine.generate([user(text) for text in "abcd"], GenerationConfig(0.0, max_tokens=20))
        assert [len(answer.choices) for answer in responses] == [1] * 4
