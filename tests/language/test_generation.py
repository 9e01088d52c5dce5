"""Sampling, grammars and utterances, against brute force and against the learner's own pass over the same tokens."""

from __future__ import annotations

import dataclasses
import functools

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
MODEL: Decoder = jax.jit(lambda key: jax.tree.map(lambda x: 4 * x, decoder(SHAPE, key)))(key_of(1))  # not uniform
LOGITS = (np.random.default_rng(0).normal(size=(50, 8)) * 2).astype("float32")
SETTINGS = [{}, {"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.7}, {"min_p": 0.2},
            {"temperature": 2.0, "top_k": 5, "top_p": 0.8, "min_p": 0.1}]  # fmt: skip


@jax.jit
def spoken(speak, cache, tokens, positions, key, grammar=Free()):  # noqa: B008
    """What a speaker says, in one program."""
    return speak(cache, tokens, positions, key, grammar)


@functools.partial(jax.jit, static_argnums=(0, 1))
def empty(rows, slots):
    return MODEL.empty(rows, slots)


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


@functools.cache
def distributions():
    """Log-probabilities as each of the settings has them, by one program."""
    return jax.jit(lambda logits: [Sampling(**settings).log_probs(logits) for settings in SETTINGS])(LOGITS)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_distribution_is_what_the_definitions_say(settings):
    found = np.exp(distributions()[SETTINGS.index(settings)])
    np.testing.assert_allclose(found, [plain(row, **settings) for row in LOGITS], atol=1e-5)


@pytest.mark.parametrize("size", [2, 3, 14, 35, 97])
def test_every_token_is_drawn_in_its_share(size):
    """Numbers spread over [0, 1): each token is drawn as often as it is likely, in vocabularies of odd sizes too."""
    shares = np.random.default_rng(size).dirichlet(np.ones(size)).astype("float32")
    shares[size // 2] = 0
    shares /= shares.sum()
    count = 20_000
    uniform = (np.arange(count, dtype="float32")[:, None] + np.float32(0.5)) / np.float32(count)
    drawn = np.asarray(jax.jit(_pick)(np.broadcast_to(shares, (count, size)), uniform))
    assert np.all(np.diff(drawn) >= 0)  # in order, as the shares lie
    np.testing.assert_allclose(np.bincount(drawn, minlength=size) / count, shares, atol=2 / count + 1e-5)


def test_what_is_drawn_follows_the_distribution():
    sampling, logits = Sampling(0.7, top_k=3), np.broadcast_to(LOGITS[0], (20_000, 8))
    tokens, logs = map(np.asarray, jax.jit(sampling.draw)(logits, key_of(0)))
    wanted = plain(LOGITS[0], 0.7, 3)
    np.testing.assert_allclose(np.bincount(tokens, minlength=8) / 20_000, wanted, atol=0.015)
    np.testing.assert_allclose(np.exp(logs), wanted[tokens], rtol=1e-4)


def test_cold_is_greedy_and_ties_are_alike():
    logs = jax.jit(Sampling(0.0).log_probs)(np.array([[1.0, 3.0, 2.0], [5.0, 0.0, 5.0]], "float32"))
    np.testing.assert_allclose(np.exp(logs), [[0, 1, 0], [0.5, 0, 0.5]], atol=1e-6)


@pytest.mark.parametrize("wrong", [{"top_k": -1}, {"top_p": 0.0}, {"min_p": 1.5}])
def test_shares_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match="out of range"):
        Sampling(**wrong)


def asked(*texts, width=6):
    """Blocks of tokens and positions, padded behind."""
    tokens, positions = np.zeros((len(texts), width), "int32"), np.full((len(texts), width), -1, "int32")
    for i, text in enumerate(texts):
        tokens[i, : len(text)], positions[i, : len(text)] = text, np.arange(len(text))
    return tokens, positions


def test_in_halves_a_learner_finds_nearly_what_the_sampler_found():
    """Both round the same numbers: they differ by what a cache's blocks add up in another order."""
    low, text = dataclasses.replace(MODEL, compute="bfloat16"), [1, 2, 3]
    drawn, _ = spoken(Speaker(low, Sampling(), 8, ()), empty(1, 16), *asked(text), key_of(0))
    whole = said(text, drawn, 0)
    found = logs_of(whole, Sampling(), low)[2:]
    np.testing.assert_allclose(np.asarray(drawn.log_probs)[0], found, atol=0.05)
    assert np.abs(found - logs_of(whole, Sampling())[2:]).max() > 1e-4  # and not in float32


def said(text, drawn, row):
    """A text and what was said after it."""
    return [*text, *(int(t) for t in np.asarray(drawn.tokens)[row] if t >= 0)]


@jax.jit
def restricted(model, sampling, ids):
    return sampling.log_probs(logits_of(model, ids))


def logs_of(text, sampling, model=MODEL):
    """Log-probabilities of all tokens but the first, by one pass over the whole text and zeros that it cannot see."""
    logs = np.asarray(restricted(model, sampling, np.array([*text, *[0] * (24 - len(text))], "int32")))
    return np.take_along_axis(logs[: len(text) - 1], np.array(text[1:])[:, None], axis=1)[:, 0]


@pytest.mark.parametrize(
    "sampling", [pytest.param(Sampling(), marks=pytest.mark.slow), Sampling(0.6, top_k=4)], ids=["plain", "restricted"]
)
@pytest.mark.parametrize("until", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_learner_finds_the_samplers_log_probabilities_over_two_turns(sampling, until):
    texts = [[1, 2, 3], [4], [5, 6, 7, 8, 1]]
    speak = Speaker(MODEL, sampling, 5, (STOP,), until)
    first, cache = spoken(speak, empty(3, 40), *asked(*texts), key_of(0))
    heard = [said(text, first, row) for row, text in enumerate(texts)]
    # The last token said was not read, and the world answers.
    tokens, _ = asked(*([int(s[-1]), 2, 2] for s in heard))
    begin = np.array([len(s) - 1 for s in heard], "int32")
    positions = jax.jit(place, static_argnums=2)(np.full(3, 3, "int32"), begin, 6)
    second, cache = spoken(speak, cache, tokens, positions, key_of(1))
    assert until or int(cache.used) == 2 * (6 + 4)
    (tokens, old), new = map(np.asarray, (first.tokens, first.log_probs)), np.asarray(second.log_probs)
    counts = np.stack([np.asarray(first.tokens) >= 0, np.asarray(second.tokens) >= 0]).sum(axis=-1)
    for row, text in enumerate(texts):
        whole = said([*heard[row], 2, 2], second, row)
        logs, (n, m) = logs_of(whole, sampling), counts[:, row]
        np.testing.assert_allclose(old[row, :n], logs[len(text) - 1 :][:n], atol=1e-5)
        np.testing.assert_allclose(new[row, :m], logs[-m:], atol=1e-5)
        assert not np.any(old[row, n:]) and np.all(tokens[row, n:] == -1)


def test_nothing_is_said_after_a_stop():
    many = [[i % 9] for i in range(200)]
    drawn, _ = spoken(Speaker(MODEL, length=6, stop=(STOP, 3)), empty(200, 20), *asked(*many), key_of(0))
    tokens, counts = np.asarray(drawn.tokens), np.asarray(drawn.counts)
    ends = np.isin(tokens, [STOP, 3])
    assert ends.any() and set(counts.tolist()) >= {1, 2, 6}
    for row, counted in zip(tokens, counts, strict=True):
        assert (row[counted:] == -1).all() and not np.isin(row[: counted - 1], [STOP, 3]).any()
        assert counted == 6 or row[counted - 1] in (STOP, 3)


def test_lengths_within_the_block_compile_nothing_again():
    speak = Speaker(MODEL, Sampling(0.6, top_k=4), 5, (STOP,), False)  # that of two turns, which is compiled anyway
    compiled = []
    for texts in ([[1], [2], [3]], [[1, 2, 3], [4, 5], [6]], [[1, 2, 3, 4, 5, 6], [7], [8, 9]]):
        spoken(speak, empty(3, 40), *asked(*texts), key_of(len(texts[0])))
        compiled.append(spoken._cache_size())
    assert len(set(compiled)) == 1


def test_only_listed_utterances_are_said_with_their_probabilities():
    """Three choices for one row and two for the other: shares of 4,000 draws against the product over their tokens."""
    choices = np.full((2, 3, 3), -1)
    choices[0] = [[1, 2, STOP], [1, 3, STOP], [4, STOP, -1]]
    choices[1, :2] = [[5, STOP, -1], [6, 7, STOP]]
    grammar = OneOf(jnp.asarray(np.repeat(choices, 2_000, axis=0)))
    speak = Speaker(MODEL, length=3, stop=(STOP,))
    drawn, _ = spoken(speak, empty(4_000, 12), *asked(*([[2, 3]] * 4_000)), key_of(3), grammar)
    tokens, logs = np.asarray(drawn.tokens), np.asarray(drawn.log_probs)
    for i, listed in enumerate(choices):
        found = tokens[2_000 * i : 2_000 * (i + 1)]
        shares = [np.mean((found == choice).all(axis=1)) for choice in listed if choice[0] >= 0]
        assert sum(shares) == 1.0
        log = logs[2_000 * i : 2_000 * (i + 1)].sum(axis=1)
        for share, choice in zip(shares, listed, strict=False):
            probability = np.exp(log[(found == choice).all(axis=1)])
            assert share > 0 and np.ptp(probability) < 1e-5
            assert share == pytest.approx(probability[0], abs=0.04)


def test_free_speech_allows_anything():
    free = Free()
    assert free.allowed(free.start(2), 5) is None and not free.after(free.start(2), jnp.array([1, 2]))[1].any()
