"""Sampling, grammars and utterances, against brute force and against the learner's own pass over the same tokens."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reading import logits_of

from thespis.core.keys import key_of
from thespis.language.generation import Speaker, place
from thespis.language.grammar import Free, OneOf
from thespis.language.sampling import Sampling, _pick
from thespis.nets.decoder import Decoder, Shape, decoder

STOP = 9
SHAPE = Shape(vocabulary=10, width=16, layers=2, heads=4, kv_heads=2, head_size=4, hidden=20)
MODEL: Decoder = jax.tree.map(lambda x: 4 * x, decoder(SHAPE, key_of(1)))  # far from uniform
LOGITS = jnp.asarray(np.random.default_rng(0).normal(size=(50, 8)) * 2)


def plain(logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    """Probabilities of one row, token by token, as the definitions say."""
    p = np.exp(logits / temperature)
    p /= p.sum()
    ranked = sorted(range(len(p)), key=lambda i: -p[i])
    if top_k:
        p[ranked[top_k:]] = 0
        p /= p.sum()
    if top_p < 1:
        total, kept = 0.0, set()
        for i in ranked:
            if total < top_p:
                kept.add(i)
            total += p[i]
        p = np.array([x if i in kept else 0 for i, x in enumerate(p)])
        p /= p.sum()
    p[p < min_p * p.max()] = 0
    return p / p.sum()


@pytest.mark.parametrize(
    "settings",
    [{}, {"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.7}, {"min_p": 0.2},
     {"temperature": 2.0, "top_k": 5, "top_p": 0.8, "min_p": 0.1}],
    ids=str,
)  # fmt: skip
def test_the_distribution_is_what_the_definitions_say(settings):
    found = np.exp(Sampling(**settings).log_probs(LOGITS))
    np.testing.assert_allclose(found, [plain(row, **settings) for row in np.asarray(LOGITS)], atol=1e-5)


@pytest.mark.parametrize("size", [2, 3, 14, 35, 97])
def test_every_token_is_drawn_in_its_share(size):
    """Numbers spread over [0, 1): each token is drawn as often as it is likely, in vocabularies of odd sizes too."""
    shares = np.random.default_rng(size).dirichlet(np.ones(size)).astype("float32")
    shares[size // 2] = 0
    shares /= shares.sum()
    count = 20_000
    uniform = (jnp.arange(count)[:, None] + 0.5) / count
    drawn = _pick(jnp.broadcast_to(shares, (count, size)), uniform)
    assert np.all(np.diff(drawn) >= 0)  # in order, as the shares lie
    np.testing.assert_allclose(np.bincount(drawn, minlength=size) / count, shares, atol=2 / count + 1e-5)


def test_what_is_drawn_follows_the_distribution():
    sampling, logits = Sampling(0.7, top_k=3), jnp.broadcast_to(LOGITS[0], (20_000, 8))
    tokens, logs = sampling.draw(logits, key_of(0))
    wanted = plain(np.asarray(LOGITS[0]), 0.7, 3)
    np.testing.assert_allclose(np.bincount(tokens, minlength=8) / 20_000, wanted, atol=0.015)
    np.testing.assert_allclose(np.exp(logs), wanted[tokens], rtol=1e-4)


def test_cold_is_greedy_and_ties_are_alike():
    logs = Sampling(0.0).log_probs(jnp.array([[1.0, 3.0, 2.0], [5.0, 0.0, 5.0]]))
    np.testing.assert_allclose(np.exp(logs), [[0, 1, 0], [0.5, 0, 0.5]], atol=1e-6)


@pytest.mark.parametrize("wrong", [{"top_k": -1}, {"top_p": 0.0}, {"min_p": 1.5}])
def test_shares_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match="out of range"):
        Sampling(**wrong)


def asked(*texts, width=6):
    """Blocks of tokens and positions, padded behind."""
    tokens = np.zeros((len(texts), width), "int32")
    for row, text in zip(tokens, texts, strict=True):
        row[: len(text)] = text
    return jnp.asarray(tokens), place(jnp.array([len(t) for t in texts]), jnp.zeros(len(texts), int), width)


def test_in_halves_a_learner_finds_nearly_what_the_sampler_found():
    """Both round the same numbers: they differ by what a cache's blocks add up in another order."""
    low, text = dataclasses.replace(MODEL, compute="bfloat16"), [1, 2, 3]
    drawn, _ = Speaker(low, Sampling(), 8, ())(low.empty(1, 16), *asked(text), key_of(0))
    whole = jnp.array(said(text, drawn, 0))
    logs = Sampling().log_probs(low.logits(low(whole, jnp.arange(len(whole)))))
    found = np.take_along_axis(np.asarray(logs[2:-1]), np.asarray(whole[3:])[:, None], axis=1)[:, 0]
    np.testing.assert_allclose(drawn.log_probs[0], found, atol=0.05)
    assert np.abs(found - logs_of(whole, Sampling())[2:]).max() > 1e-4  # and not in float32


def said(text, drawn, row):
    """A text and what was said after it."""
    return [*text, *(int(t) for t in drawn.tokens[row] if t >= 0)]


def logs_of(text, sampling):
    """Log-probabilities of all tokens but the first, by one pass over the whole text."""
    logs = sampling.log_probs(logits_of(MODEL, jnp.array(text)))
    return np.take_along_axis(np.asarray(logs[:-1]), np.array(text[1:])[:, None], axis=1)[:, 0]


@pytest.mark.parametrize(
    "sampling", [pytest.param(Sampling(), marks=pytest.mark.slow), Sampling(0.6, top_k=4)], ids=["plain", "restricted"]
)
@pytest.mark.parametrize("until", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_learner_finds_the_samplers_log_probabilities_over_two_turns(sampling, until):
    texts = [[1, 2, 3], [4], [5, 6, 7, 8, 1]]
    speak = Speaker(MODEL, sampling, 5, (STOP,), until)
    first, cache = speak(MODEL.empty(3, 40), *asked(*texts), key_of(0))
    heard = [said(text, first, row) for row, text in enumerate(texts)]
    more = [[int(s[-1]), 2, 2] for s in heard]  # the last token said was not read, and the world answers
    begin = jnp.array([len(s) - 1 for s in heard])
    tokens = jnp.asarray(np.array(more))
    second, cache = speak(cache, tokens, place(jnp.array([3, 3, 3]), begin, 3), key_of(1))
    assert until or int(cache.used) == 6 + 3 + 2 * 4
    for row, text in enumerate(texts):
        whole = said([*heard[row], 2, 2], second, row)
        logs, n, m = logs_of(whole, sampling), int(first.counts[row]), int(second.counts[row])
        np.testing.assert_allclose(first.log_probs[row, :n], logs[len(text) - 1 :][:n], atol=1e-5)
        np.testing.assert_allclose(second.log_probs[row, :m], logs[-m:], atol=1e-5)
        assert not np.any(np.asarray(first.log_probs[row, n:])) and np.all(np.asarray(first.tokens[row, n:]) == -1)


def test_nothing_is_said_after_a_stop():
    many = [[i % 9] for i in range(200)]
    drawn, _ = Speaker(MODEL, length=6, stop=(STOP, 3))(MODEL.empty(200, 20), *asked(*many), key_of(0))
    tokens = np.asarray(drawn.tokens)
    ends = np.isin(tokens, [STOP, 3])
    assert ends.any() and set(drawn.counts.tolist()) >= {1, 2, 6}
    for row, counted in zip(tokens, drawn.counts, strict=True):
        assert (row[counted:] == -1).all() and not np.isin(row[: counted - 1], [STOP, 3]).any()
        assert counted == 6 or row[counted - 1] in (STOP, 3)


def test_lengths_within_the_block_compile_nothing_again():
    speak = Speaker(MODEL, length=4, stop=(STOP,))
    compiled = jax.jit(lambda *said: speak(*said))
    for texts in ([[1], [2]], [[1, 2, 3], [4, 5]], [[1, 2, 3, 4, 5, 6], [7]]):
        compiled(MODEL.empty(2, 16), *asked(*texts), key_of(len(texts[0])))
    assert compiled._cache_size() == 1


def test_only_listed_utterances_are_said_with_their_probabilities():
    """Three choices for one row and two for the other: shares of 4,000 draws against the product over their tokens."""
    choices = np.full((2, 3, 3), -1)
    choices[0] = [[1, 2, STOP], [1, 3, STOP], [4, STOP, -1]]
    choices[1, :2] = [[5, STOP, -1], [6, 7, STOP]]
    rows = jnp.asarray(np.repeat(choices, 2_000, axis=0))
    tokens, positions = asked(*([[2, 3]] * 4_000))
    speak = Speaker(MODEL, length=3, stop=(STOP,))
    drawn, _ = speak(MODEL.empty(4_000, 12), tokens, positions, key_of(3), OneOf(rows))
    for i, listed in enumerate(choices):
        found = np.asarray(drawn.tokens[2_000 * i : 2_000 * (i + 1)])
        shares = [np.mean((found == choice).all(axis=1)) for choice in listed if choice[0] >= 0]
        assert sum(shares) == 1.0
        log = np.asarray(drawn.log_probs[2_000 * i : 2_000 * (i + 1)]).sum(axis=1)
        for share, choice in zip(shares, listed, strict=False):
            probability = np.exp(log[(found == choice).all(axis=1)])
            assert share > 0 and np.ptp(probability) < 1e-5
            assert share == pytest.approx(probability[0], abs=0.04)


def test_free_speech_allows_anything():
    free = Free()
    assert free.allowed(free.start(2), 5) is None and not free.after(free.start(2), jnp.array([1, 2]))[1].any()
