"""The engine in this process: seeds, company, strings that stop, parts that come, against plain decoding."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from reading import logits_of
from talkers import parts, talker, user

from thespis.core.keys import key_of
from thespis.language import local
from thespis.language.chat import ACTOR, Conversation, plain
from thespis.language.engine import Engine, Piece, Refused, Request, Usage, collected
from thespis.language.local import Local
from thespis.language.sampling import Apart, Sampling
from thespis.language.utterance import Utterance

MODEL, TOKENIZER = parts()


# All answers here are 17 to 32 tokens long: two programs for each of two widths of prompts do for all.
def prompt(text: str) -> list[int]:
    return TOKENIZER.encode(f"user:\n{text}<end>\nassistant:\n")


def logits(ids: list[int]) -> np.ndarray:
    """By one pass over the whole text, without a cache; zeros behind, which it does not see, make one program do."""
    return np.asarray(logits_of(MODEL, np.array([*ids, *[0] * (64 - len(ids))], "int32")))[: len(ids)]


def greedy(text: str, length: int) -> list[int]:
    ids = prompt(text)
    for _ in range(length):
        ids.append(int(np.argmax(logits(ids)[-1])))
        if ids[-1] in TOKENIZER.stop:
            break
    return ids[len(prompt(text)) :]


def test_it_is_an_engine():
    assert isinstance(talker(), Engine)


def test_greedy_is_what_the_whole_pass_likes_best():
    (answer,) = talker().answers([user("hi")], Request(temperature=0.0, length=20))
    (reply,) = answer.replies
    assert list(reply.tokens) == greedy("hi", 20)
    assert reply.text == TOKENIZER.decode(reply.tokens, special=False) and reply.finish == "length"
    assert answer.usage == Usage(len(prompt("hi")), 20)


def test_log_probs_are_those_of_the_distribution_that_was_sampled():
    request = Request(temperature=0.7, top_k=40, top_p=0.95, min_p=0.01, length=20, seed=5)
    (answer,) = talker().answers([user("where is it?")], request)
    (reply,) = answer.replies
    ids = [*prompt("where is it?"), *reply.tokens]
    logs = np.asarray(jax.jit(Sampling(0.7, 40, 0.95, 0.01).log_probs)(logits(ids)))
    start = len(ids) - len(reply.tokens)
    wanted = [float(logs[start - 1 + i, token]) for i, token in enumerate(reply.tokens)]
    np.testing.assert_allclose(reply.log_probs, wanted, atol=1e-4)


def test_the_same_seed_says_the_same_in_any_company():
    request, rng = Request(length=20, seed=3, n=2), np.random.default_rng(0)
    alone = talker().answers([user("hello there")], request)[0]
    assert alone.replies[0] != alone.replies[1]
    for _ in range(6):
        asks = [
            talker().ask(
                user("x" * int(rng.integers(1, 40))), Request(0.5, 0.9, int(rng.integers(9)), length=20, seed=i)
            )
            for i in range(int(rng.integers(1, 9)))
        ]
        at = int(rng.integers(len(asks) + 1))
        asks.insert(at, talker().ask(user("hello there"), request))
        pieces = [piece for i, piece in talker().spoken(asks) if i == at]
        assert collected(pieces, 2).replies == alone.replies
    assert talker().answers([user("hello there")], Request(length=20, seed=4, n=2))[0].replies != alone.replies
    far = (talker().answers([user("a")], Request(length=20, seed=seed))[0].text for seed in (3, 3 + 2**32, -3))
    assert len(set(far)) == 3


def test_without_a_seed_it_says_something_else_each_time():
    first, second = (talker().answers([user("a")], Request(length=20))[0].text for _ in range(2))
    assert first != second


def test_parts_make_the_whole():
    request = Request(length=32, seed=1, n=3, stop=("e", "qu"))
    (answer,) = talker().answers([user("tell me")], request)
    pieces = list(talker().stream(user("tell me"), request))
    assert len(pieces) > 3 and collected(pieces, 3) == answer
    assert [p.usage for p in pieces if p.usage is not None] == [answer.usage]


def test_a_string_that_stops_cuts_the_text_and_keeps_the_tokens():
    free = talker().answers([user("go")], Request(length=32, seed=2))[0].replies[0]
    words = [TOKENIZER.decode([t], special=False) for t in free.tokens]
    at = next(i for i in range(12, 30) if words[i].isascii() and words[i + 1].isascii() and words[i] and words[i + 1])
    stop = words[at] + words[at + 1]
    wanted = "".join(words).index(stop) if "".join(words).isascii() else free.text.index(stop)
    cut = talker().answers([user("go")], Request(length=32, seed=2, stop=("zzzz", stop)))[0].replies[0]
    assert cut.finish == "stop" and cut.text == free.text[:wanted]
    assert cut.tokens == free.tokens[: len(cut.tokens)] and len(cut.tokens) <= at + 2
    assert TOKENIZER.decode(cut.tokens, special=False).endswith(stop)
    assert TOKENIZER.decode(cut.tokens[:-1], special=False).find(stop) == -1


@pytest.mark.parametrize("size", [1, 3, 100])
def test_text_is_held_back_until_it_is_settled(size):
    text = "größer 🙂 als ab, und abc"
    ids = TOKENIZER.encode(text)
    said, given = Utterance(TOKENIZER, Request(stop=("abcd", "abc"))), []
    for i in range(0, len(ids), size):
        given.append(said.heard(ids[i : i + size], [0.0] * len(ids[i : i + size])).text)
        assert "\N{REPLACEMENT CHARACTER}" not in "".join(given)
        if said.finish is None:
            assert not "".join(given).endswith(("a", "ab"))
    assert "".join(given) == "größer 🙂 als ab, und " and said.finish == "stop"


def test_an_end_token_ends_without_text():
    said = Utterance(TOKENIZER, Request())
    piece = said.heard([*TOKENIZER.encode("yes"), *TOKENIZER.stop, 70, 71], [-1.0] * 6)
    assert piece.text == "yes" and piece.finish == "stop" and piece.tokens[-1] == TOKENIZER.stop[0]
    assert len(piece.tokens) == len(piece.log_probs) == 4


def test_a_conversation_keeps_its_ids():
    template, request = plain(TOKENIZER), Request(length=20, seed=1)
    talk = Conversation().heard(template, TOKENIZER, *user("a door"))
    (answer,) = talker().answers([talk], request)
    talk = talk.said(TOKENIZER, answer.replies[0].tokens).heard(template, TOKENIZER, *user("open it"))
    said = [t for t, who in zip(talk.tokens, talk.owners, strict=True) if who == ACTOR]
    assert tuple(said) == answer.replies[0].tokens
    assert talker().answers([talk], request)[0].usage.prompt == len(talk.tokens)


def test_within_a_bucket_nothing_is_compiled_again():
    engine = talker()
    engine.answers([user("a")], Request(length=17, seed=0))
    before = local._say._cache_size()
    engine.answers([user("b" * 9), user("cc")], Request(0.3, 0.5, 7, 0.1, length=32, seed=8, n=3))
    assert local._say._cache_size() == before


def test_who_is_no_longer_wanted_is_let_go():
    asks = [talker().ask(user(text), Request(length=32, seed=1)) for text in ("a", "b")]
    heard = [i for i, _ in talker().spoken(asks, lambda i: i == 0)]
    assert set(heard) == {0}


@pytest.mark.parametrize(
    ("wrong", "field"),
    [({"temperature": -1.0}, "temperature"), ({"temperature": float("nan")}, "temperature"), ({"top_p": 0.0}, "top_p"),
     ({"min_p": 2.0}, "min_p"), ({"top_k": -1}, "top_k"), ({"length": 0}, "length"), ({"n": 0}, "n"),
     ({"stop": ("",)}, "stop"), ({"seed": 2**63}, "seed")],
)  # fmt: skip
def test_what_is_out_of_range_is_refused_by_its_name(wrong, field):
    with pytest.raises(Refused, match=f"{field} is") as refused:
        Request(**wrong)
    assert refused.value.field == field


def test_too_long_and_empty_prompts_are_refused():
    with pytest.raises(Refused, match="are more than this model's 256") as refused:
        talker().answers([user("x" * 300)])
    assert refused.value.code == "context_length_exceeded"
    with pytest.raises(Refused, match="the prompt is empty"):
        talker().answers([Conversation()])
    with pytest.raises(ValueError, match="has no end"):
        collected([Piece(text="a")], 1)


SETTINGS = [(1.0, 0, 1.0, 0.0), (0.0, 0, 1.0, 0.0), (2.0, 3, 1.0, 0.0), (1.0, 0, 0.6, 0.0),
            (1.0, 0, 1.0, 0.2), (1.5, 5, 0.8, 0.1), (1.0, 10_000, 0.999, 0.0)]  # fmt: skip


def test_rows_apart_are_each_sampled_as_alone():
    logits = (np.random.default_rng(1).normal(size=(len(SETTINGS), 50)) * 2).astype("float32")
    kinds = ("float32", "int32", "float32", "float32")
    rows = [np.array(column, kind) for column, kind in zip(zip(*SETTINGS, strict=True), kinds, strict=True)]
    found = np.asarray(jax.jit(lambda rows, logits: Apart(*rows).log_probs(logits))(rows, logits))
    alone = jax.jit(lambda logits: [Sampling(*s).log_probs(row) for s, row in zip(SETTINGS, logits, strict=True)])
    for row, wanted in enumerate(alone(logits)):
        np.testing.assert_allclose(found[row], wanted, atol=1e-5)
    keys = jax.random.split(key_of(0), len(SETTINGS))
    draw = jax.jit(lambda rows, logits, keys: Apart(*rows).draw(logits, keys))
    tokens, logs = map(np.asarray, draw(rows, logits, keys))
    back, _ = draw([x[::-1] for x in rows], logits[::-1], keys[::-1])
    np.testing.assert_array_equal(tokens[::-1], back)
    np.testing.assert_allclose(logs, [found[i, t] for i, t in enumerate(tokens)], atol=1e-6)


def test_an_engine_needs_no_template(tmp_path):
    assert Local(MODEL, TOKENIZER).template(user("a")) == "user:\na<end>\nassistant:\n"
