"""Local engine: seeds, batching, stop strings and streaming, against plain decoding."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from plain_decoder import logits_of
from small_lm import model_and_tokenizer, small_engine, user

from thespis.language import local_engine
from thespis.language.chat import ACTOR, Conversation, default_template
from thespis.language.engine import CompletionChunk, Engine, GenerationConfig, RequestError, Usage, join_chunks
from thespis.language.local_engine import IncrementalDetokenizer, LocalEngine
from thespis.language.sampling import PerRowSampler, TemperatureSampler
from thespis.language.tokenizer import byte_tokenizer
from thespis.runtime.keys import seed_key

MODEL, TOKENIZER = model_and_tokenizer()


# All responses have 17 to 32 tokens: two programs for each of two prompt widths are enough.
def prompt(text: str) -> list[int]:
    return TOKENIZER.encode(f"user:\n{text}<end>\nassistant:\n")


def logits(tokens: list[int]) -> np.ndarray:
    """Logits by one pass over the whole text without a cache, padded with zeros so that one program is enough."""
    return np.asarray(logits_of(MODEL, np.array([*tokens, *[0] * (64 - len(tokens))], "int32")))[: len(tokens)]


def greedy(text: str, length: int) -> list[int]:
    tokens = prompt(text)
    for _ in range(length):
        tokens.append(int(np.argmax(logits(tokens)[-1])))
        if tokens[-1] in TOKENIZER.stop_tokens:
            break
    return tokens[len(prompt(text)) :]


def test_local_engine_implements_engine():
    assert isinstance(small_engine(), Engine)


@pytest.mark.long
def test_greedy_matches_full_passes():
    (answer,) = small_engine().generate([user("hi")], GenerationConfig(temperature=0.0, max_tokens=20))
    (reply,) = answer.choices
    assert list(reply.tokens) == greedy("hi", 20)
    assert reply.text == TOKENIZER.decode(reply.tokens, keep_special_tokens=False) and reply.finish_reason == "length"
    assert answer.usage == Usage(len(prompt("hi")), 20)


def test_greedy_log_probs_are_those_of_the_model():
    (answer,) = small_engine().generate([user("hi")], GenerationConfig(0.0, top_k=1, max_tokens=20))
    (reply,) = answer.choices
    logs = np.asarray(jax.nn.log_softmax(logits([*prompt("hi"), *reply.tokens])))[len(prompt("hi")) - 1 :]
    expected = [logs[i, token] for i, token in enumerate(reply.tokens)]
    np.testing.assert_allclose(reply.log_probs, expected, atol=1e-4)
    assert min(reply.log_probs) > -20 and max(reply.log_probs) < -1e-3


def test_a_text_that_cannot_fit_is_refused_by_its_beginning(monkeypatch):
    """Only a part of it is tokenized; a long text of long tokens is not refused."""
    tokenizer, sizes = byte_tokenizer(["#" * 100]), []
    engine = LocalEngine(MODEL, tokenizer, max_length=256)
    encode = tokenizer.encode
    monkeypatch.setattr(tokenizer, "encode", lambda text: sizes.append(len(text)) or encode(text))
    for text in ("x" * 20_000, "#" * 30_000):  # more than 256 tokens; more than 256 times the longest token
        for question in (text, user(text)):
            with pytest.raises(RequestError, match="more than this model's 256 tokens") as error:
                engine.tokenize_prompt(question, GenerationConfig())
            assert error.value.code == "context_length_exceeded"
    assert sizes == [16 * 256] * 2
    assert len(engine.tokenize_prompt("#" * 20_000, GenerationConfig(max_tokens=4)).tokens) == 200


def test_log_probs_match_the_sampled_distribution():
    request = GenerationConfig(temperature=0.7, top_k=40, top_p=0.95, min_p=0.01, max_tokens=20, seed=5)
    (answer,) = small_engine().generate([user("where is it?")], request)
    (reply,) = answer.choices
    tokens = [*prompt("where is it?"), *reply.tokens]
    logs = np.asarray(jax.jit(TemperatureSampler(0.7, 40, 0.95, 0.01).log_probs)(logits(tokens)))
    start = len(tokens) - len(reply.tokens)
    expected = [float(logs[start - 1 + i, token]) for i, token in enumerate(reply.tokens)]
    np.testing.assert_allclose(reply.log_probs, expected, atol=1e-4)


@pytest.mark.long
def test_seeded_responses_do_not_depend_on_the_batch():
    request, rng = GenerationConfig(max_tokens=20, seed=3, n=2), np.random.default_rng(0)
    alone = small_engine().generate([user("hello there")], request)[0]
    assert alone.choices[0] != alone.choices[1]
    for _ in range(6):
        requests = [
            small_engine().tokenize_prompt(
                user("x" * int(rng.integers(1, 40))),
                GenerationConfig(0.5, 0.9, int(rng.integers(9)), max_tokens=20, seed=i),
            )
            for i in range(int(rng.integers(1, 9)))
        ]
        index = int(rng.integers(len(requests) + 1))
        requests.insert(index, small_engine().tokenize_prompt(user("hello there"), request))
        chunks = [chunk for i, chunk in small_engine().stream_batch(requests) if i == index]
        assert join_chunks(chunks, 2).choices == alone.choices
    assert (
        small_engine().generate([user("hello there")], GenerationConfig(max_tokens=20, seed=4, n=2))[0].choices
        != alone.choices
    )
    texts = (
        small_engine().generate([user("a")], GenerationConfig(max_tokens=20, seed=seed))[0].text
        for seed in (3, 3 + 2**32, -3)
    )
    assert len(set(texts)) == 3


def test_responses_without_a_seed_differ():
    first, second = (small_engine().generate([user("a")], GenerationConfig(max_tokens=20))[0].text for _ in range(2))
    assert first != second


def test_stream_chunks_join_to_the_response():
    request = GenerationConfig(max_tokens=32, seed=1, n=3, stop=("e", "qu"))
    (answer,) = small_engine().generate([user("tell me")], request)
    chunks = list(small_engine().stream(user("tell me"), request))
    assert len(chunks) > 3 and join_chunks(chunks, 3) == answer
    assert [p.usage for p in chunks if p.usage is not None] == [answer.usage]


def test_stop_string_cuts_the_text_and_keeps_the_tokens():
    """Two neighboring tokens of a free response are the stop string of a second one with the same seed."""
    engine = small_engine()

    def respond(seed: int, stop: tuple[str, ...] = ()):
        return engine.generate([user("go")], GenerationConfig(max_tokens=32, seed=seed, stop=stop))[0].choices[0]

    seed, free = next((seed, free) for seed in range(50) if len((free := respond(seed)).tokens) == 32)
    words = [TOKENIZER.decode([t], keep_special_tokens=False) for t in free.tokens]
    index = next(
        i for i in range(12, 30) if words[i].isascii() and words[i + 1].isascii() and words[i] and words[i + 1]
    )
    stop = words[index] + words[index + 1]
    length = "".join(words).index(stop) if "".join(words).isascii() else free.text.index(stop)
    cut = respond(seed, ("zzzz", stop))
    assert cut.finish_reason == "stop" and cut.text == free.text[:length]
    assert cut.tokens == free.tokens[: len(cut.tokens)] and len(cut.tokens) <= index + 2
    assert TOKENIZER.decode(cut.tokens, keep_special_tokens=False).endswith(stop)
    assert TOKENIZER.decode(cut.tokens[:-1], keep_special_tokens=False).find(stop) == -1


@pytest.mark.parametrize("size", [1, 3, 100])
def test_detokenizer_withholds_unfinished_text(size):
    text = "größer 🙂 als ab, und abc"
    tokens = TOKENIZER.encode(text)
    detokenizer, texts = IncrementalDetokenizer(TOKENIZER, GenerationConfig(stop=("abcd", "abc"))), []
    for i in range(0, len(tokens), size):
        texts.append(detokenizer.append(tokens[i : i + size], [0.0] * len(tokens[i : i + size])).text)
        assert "\N{REPLACEMENT CHARACTER}" not in "".join(texts)
        if detokenizer.finish_reason is None:
            assert not "".join(texts).endswith(("a", "ab"))
    assert "".join(texts) == "größer 🙂 als ab, und " and detokenizer.finish_reason == "stop"


def test_stop_token_adds_no_text():
    detokenizer = IncrementalDetokenizer(TOKENIZER, GenerationConfig())
    chunk = detokenizer.append([*TOKENIZER.encode("yes"), *TOKENIZER.stop_tokens, 70, 71], [-1.0] * 6)
    assert chunk.text == "yes" and chunk.finish_reason == "stop" and chunk.tokens[-1] == TOKENIZER.stop_tokens[0]
    assert len(chunk.tokens) == len(chunk.log_probs) == 4


@pytest.mark.long
def test_conversation_keeps_its_tokens():
    template, request = default_template(TOKENIZER), GenerationConfig(max_tokens=20, seed=1)
    conversation = Conversation().add_messages(template, TOKENIZER, *user("a door"))
    (answer,) = small_engine().generate([conversation], request)
    conversation = conversation.add_response(TOKENIZER, answer.choices[0].tokens).add_messages(
        template, TOKENIZER, *user("open it")
    )
    response_tokens = [t for t, owner in zip(conversation.tokens, conversation.owners, strict=True) if owner == ACTOR]
    assert tuple(response_tokens) == answer.choices[0].tokens
    assert small_engine().generate([conversation], request)[0].usage.prompt_tokens == len(conversation.tokens)


def test_requests_within_a_bucket_share_a_program():
    engine = small_engine()
    engine.generate([user("a")], GenerationConfig(max_tokens=17, seed=0))
    before = local_engine._generate_chunk._cache_size()
    engine.generate([user("b" * 9), user("cc")], GenerationConfig(0.3, 0.5, 7, 0.1, max_tokens=32, seed=8, n=3))
    assert local_engine._generate_chunk._cache_size() == before


def test_cancelled_requests_are_dropped():
    requests = [
        small_engine().tokenize_prompt(user(text), GenerationConfig(max_tokens=32, seed=1)) for text in ("a", "b")
    ]
    indices = [i for i, _ in small_engine().stream_batch(requests, lambda i: i == 0)]
    assert set(indices) == {0}


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"min_p": 2.0}, "min_p"),
        ({"top_k": -1}, "top_k"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"stop": ("",)}, "stop"),
        ({"seed": 2**63}, "seed"),
    ],
)
def test_values_out_of_range_are_refused_by_name(wrong, field):
    with pytest.raises(RequestError, match=f"{field} is") as error:
        GenerationConfig(**wrong)
    assert error.value.field == field


def test_too_long_and_empty_prompts_are_refused():
    with pytest.raises(RequestError, match="are more than this model's 256") as error:
        small_engine().generate([user("x" * 300)])
    assert error.value.code == "context_length_exceeded"
    with pytest.raises(RequestError, match="the prompt is empty"):
        small_engine().generate([Conversation()])
    with pytest.raises(ValueError, match="has no end"):
        join_chunks([CompletionChunk(text="a")], 1)


SETTINGS = [
    (1.0, 0, 1.0, 0.0),
    (0.0, 0, 1.0, 0.0),
    (2.0, 3, 1.0, 0.0),
    (1.0, 0, 0.6, 0.0),
    (1.0, 0, 1.0, 0.2),
    (1.5, 5, 0.8, 0.1),
    (1.0, 10_000, 0.999, 0.0),
]


def test_per_row_sampler_equals_single_samplers():
    logits = (np.random.default_rng(1).normal(size=(len(SETTINGS), 50)) * 2).astype("float32")
    kinds = ("float32", "int32", "float32", "float32")
    rows = [np.array(column, kind) for column, kind in zip(zip(*SETTINGS, strict=True), kinds, strict=True)]
    log_probs = np.asarray(jax.jit(lambda rows, logits: PerRowSampler(*rows).log_probs(logits))(rows, logits))
    single = jax.jit(
        lambda logits: [TemperatureSampler(*s).log_probs(row) for s, row in zip(SETTINGS, logits, strict=True)]
    )
    for row, expected in enumerate(single(logits)):
        np.testing.assert_allclose(log_probs[row], expected, atol=1e-5)
    keys = jax.random.split(seed_key(0), len(SETTINGS))
    draw = jax.jit(lambda rows, logits, keys: PerRowSampler(*rows).sample(logits, keys))
    tokens, logs = map(np.asarray, draw(rows, logits, keys))
    back, _ = draw([x[::-1] for x in rows], logits[::-1], keys[::-1])
    np.testing.assert_array_equal(tokens[::-1], back)
    reported = np.asarray(jax.jit(lambda rows, logits: PerRowSampler(*rows).reported_log_probs(logits))(rows, logits))
    np.testing.assert_allclose(logs, [reported[i, t] for i, t in enumerate(tokens)], atol=1e-6)
    for row, (temperature, *_) in enumerate(SETTINGS):
        expected = log_probs[row] if temperature else jax.nn.log_softmax(logits[row])
        np.testing.assert_allclose(reported[row], expected, atol=1e-5)


def test_default_template(tmp_path):
    assert LocalEngine(MODEL, TOKENIZER).template(user("a")) == "user:\na<end>\nassistant:\n"
