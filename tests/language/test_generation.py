"""Sampling, grammars and generation, against brute force and against the learner's full pass over the same tokens."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain_decoder import logits_of

from thespis.language.generation import ResponseGenerator, block_positions
from thespis.language.grammar import ChoiceGrammar, NoGrammar
from thespis.language.sampling import TemperatureSampler, _inverse_cdf
from thespis.nets.decoder import Decoder, DecoderConfig, init_decoder
from thespis.runtime.keys import seed_key

STOP = 9
CONFIG = DecoderConfig(
    vocab_size=10, hidden_size=16, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=4, intermediate_size=20
)
MODEL: Decoder = jax.jit(lambda key: jax.tree.map(lambda x: 4 * x, init_decoder(CONFIG, key)))(
    seed_key(1)
)  # far from uniform
LOGITS = (np.random.default_rng(0).normal(size=(50, 8)) * 2).astype("float32")
SETTINGS = [
    {},
    {"temperature": 0.5},
    {"top_k": 3},
    {"top_p": 0.7},
    {"min_p": 0.2},
    {"temperature": 2.0, "top_k": 5, "top_p": 0.8, "min_p": 0.1},
]


@jax.jit
def generate(generator, cache, tokens, positions, key, grammar=NoGrammar()):  # noqa: B008
    """Generate responses, in one compiled program."""
    return generator(cache, tokens, positions, key, grammar)


@functools.partial(jax.jit, static_argnums=(0, 1))
def empty_cache(rows, slots):
    return MODEL.init_cache(rows, slots)


def plain(logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    """Probabilities of one row, computed token by token from the definitions."""
    p = np.exp(logits / temperature)
    p /= p.sum()
    ranked = sorted(range(len(p)), key=lambda i: -p[i])
    if top_k:
        p[ranked[top_k:]] = 0
        p /= p.sum()
    if top_p < 1:
        total, nucleus = 0.0, set()
        for i in ranked:
            if total < top_p:
                nucleus.add(i)
            total += p[i]
        p = np.array([x if i in nucleus else 0 for i, x in enumerate(p)])
        p /= p.sum()
    p[p < min_p * p.max()] = 0
    return p / p.sum()


@functools.cache
def distributions():
    """Log-probabilities for each of the settings, by one program."""
    return jax.jit(lambda logits: [TemperatureSampler(**settings).log_probs(logits) for settings in SETTINGS])(LOGITS)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_log_probs_match_the_definitions(settings):
    probs = np.exp(distributions()[SETTINGS.index(settings)])
    np.testing.assert_allclose(probs, [plain(row, **settings) for row in LOGITS], atol=1e-5)


@pytest.mark.parametrize("size", [2, 3, 14, 35, 97])
def test_inverse_cdf_samples_every_token_with_its_probability(size):
    """With evenly spaced numbers in [0, 1), token frequencies equal probabilities, also for odd vocabulary sizes."""
    probs = np.random.default_rng(size).dirichlet(np.ones(size)).astype("float32")
    probs[size // 2] = 0
    probs /= probs.sum()
    count = 20_000
    uniform = (np.arange(count, dtype="float32")[:, None] + np.float32(0.5)) / np.float32(count)
    tokens = np.asarray(jax.jit(_inverse_cdf)(np.broadcast_to(probs, (count, size)), uniform))
    assert np.all(np.diff(tokens) >= 0)  # tokens are in order
    np.testing.assert_allclose(np.bincount(tokens, minlength=size) / count, probs, atol=2 / count + 1e-5)


def test_samples_follow_the_distribution():
    sampling, logits = TemperatureSampler(0.7, top_k=3), np.broadcast_to(LOGITS[0], (20_000, 8))
    tokens, logs = map(np.asarray, jax.jit(sampling.sample)(logits, seed_key(0)))
    expected = plain(LOGITS[0], 0.7, 3)
    np.testing.assert_allclose(np.bincount(tokens, minlength=8) / 20_000, expected, atol=0.015)
    np.testing.assert_allclose(np.exp(logs), expected[tokens], rtol=1e-4)


def test_temperature_zero_is_greedy_with_equal_ties():
    logs = jax.jit(TemperatureSampler(0.0).log_probs)(np.array([[1.0, 3.0, 2.0], [5.0, 0.0, 5.0]], "float32"))
    np.testing.assert_allclose(np.exp(logs), [[0, 1, 0], [0.5, 0, 0.5]], atol=1e-6)


@pytest.mark.parametrize("wrong", [{"top_k": -1}, {"top_p": 0.0}, {"min_p": 1.5}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match="out of range"):
        TemperatureSampler(**wrong)


def prompt_block(*texts, width=6):
    """Blocks of tokens and positions, padded at the end."""
    tokens, positions = np.zeros((len(texts), width), "int32"), np.full((len(texts), width), -1, "int32")
    for i, text in enumerate(texts):
        tokens[i, : len(text)], positions[i, : len(text)] = text, np.arange(len(text))
    return tokens, positions


@pytest.mark.long
def test_bfloat16_log_probs_of_learner_and_sampler_are_close():
    """They differ only by rounding, because blocks of a cache are summed in another order."""
    low, text = dataclasses.replace(MODEL, compute_dtype="bfloat16"), [1, 2, 3]
    response, _ = generate(
        ResponseGenerator(low, TemperatureSampler(), 8, ()), empty_cache(1, 16), *prompt_block(text), seed_key(0)
    )
    tokens = with_response(text, response, 0)
    log_probs = log_probs_of(tokens, TemperatureSampler(), low)[2:]
    np.testing.assert_allclose(np.asarray(response.log_probs)[0], log_probs, atol=0.05)
    assert np.abs(log_probs - log_probs_of(tokens, TemperatureSampler())[2:]).max() > 1e-4  # bfloat16 was used


def with_response(text, response, row):
    """A prompt with its response."""
    return [*text, *(int(t) for t in np.asarray(response.tokens)[row] if t >= 0)]


@jax.jit
def restricted(model, sampling, tokens):
    return sampling.log_probs(logits_of(model, tokens))


def log_probs_of(text, sampling, model=MODEL):
    """Log-probabilities of all tokens but the first, by one pass over the whole text with padding."""
    logs = np.asarray(restricted(model, sampling, np.array([*text, *[0] * (24 - len(text))], "int32")))
    return np.take_along_axis(logs[: len(text) - 1], np.array(text[1:])[:, None], axis=1)[:, 0]


@pytest.mark.parametrize(
    "sampling",
    [pytest.param(TemperatureSampler(), marks=pytest.mark.slow), TemperatureSampler(0.6, top_k=4)],
    ids=["plain", "restricted"],
)
@pytest.mark.parametrize("until", [pytest.param(True, marks=pytest.mark.slow), False])
def test_learner_and_sampler_log_probs_agree_over_two_turns(sampling, until):
    texts = [[1, 2, 3], [4], [5, 6, 7, 8, 1]]
    generator = ResponseGenerator(MODEL, sampling, 5, (STOP,), until)
    first, cache = generate(generator, empty_cache(3, 40), *prompt_block(*texts), seed_key(0))
    dialogues = [with_response(text, first, row) for row, text in enumerate(texts)]
    # The cache lacks the last token of the response; the environment answers.
    tokens, _ = prompt_block(*([int(s[-1]), 2, 2] for s in dialogues))
    starts = np.array([len(s) - 1 for s in dialogues], "int32")
    positions = jax.jit(block_positions, static_argnums=2)(np.full(3, 3, "int32"), starts, 6)
    second, cache = generate(generator, cache, tokens, positions, seed_key(1))
    assert until or int(cache.num_used) == 2 * (6 + 4)
    (tokens, old), new = map(np.asarray, (first.tokens, first.log_probs)), np.asarray(second.log_probs)
    counts = np.stack([np.asarray(first.tokens) >= 0, np.asarray(second.tokens) >= 0]).sum(axis=-1)
    for row, text in enumerate(texts):
        dialogue = with_response([*dialogues[row], 2, 2], second, row)
        logs, (n, m) = log_probs_of(dialogue, sampling), counts[:, row]
        np.testing.assert_allclose(old[row, :n], logs[len(text) - 1 :][:n], atol=1e-5)
        np.testing.assert_allclose(new[row, :m], logs[-m:], atol=1e-5)
        assert not np.any(old[row, n:]) and np.all(tokens[row, n:] == -1)


def test_nothing_is_generated_after_a_stop_token():
    prompts = [[i % 9] for i in range(200)]
    response, _ = generate(
        ResponseGenerator(MODEL, max_tokens=6, stop_tokens=(STOP, 3)),
        empty_cache(200, 20),
        *prompt_block(*prompts),
        seed_key(0),
    )
    tokens, lengths = np.asarray(response.tokens), np.asarray(response.lengths)
    ends = np.isin(tokens, [STOP, 3])
    assert ends.any() and set(lengths.tolist()) >= {1, 2, 6}
    for row, length in zip(tokens, lengths, strict=True):
        assert (row[length:] == -1).all() and not np.isin(row[: length - 1], [STOP, 3]).any()
        assert length == 6 or row[length - 1] in (STOP, 3)


def test_prompt_lengths_within_a_block_share_a_program():
    generator = ResponseGenerator(
        MODEL, TemperatureSampler(0.6, top_k=4), 5, (STOP,), False
    )  # the same as in the test of two turns
    num_programs = []
    for texts in ([[1], [2], [3]], [[1, 2, 3], [4, 5], [6]], [[1, 2, 3, 4, 5, 6], [7], [8, 9]]):
        generate(generator, empty_cache(3, 40), *prompt_block(*texts), seed_key(len(texts[0])))
        num_programs.append(generate._cache_size())
    assert len(set(num_programs)) == 1


@pytest.mark.long
def test_choice_grammar_samples_listed_responses_with_their_probabilities():
    """Three choices in one row and two in the other: sample frequencies against products of token probabilities."""
    choices = np.full((2, 3, 3), -1)
    choices[0] = [[1, 2, STOP], [1, 3, STOP], [4, STOP, -1]]
    choices[1, :2] = [[5, STOP, -1], [6, 7, STOP]]
    grammar = ChoiceGrammar(jnp.asarray(np.repeat(choices, 2_000, axis=0)))
    generator = ResponseGenerator(MODEL, max_tokens=3, stop_tokens=(STOP,))
    response, _ = generate(generator, empty_cache(4_000, 12), *prompt_block(*([[2, 3]] * 4_000)), seed_key(3), grammar)
    tokens, logs = np.asarray(response.tokens), np.asarray(response.log_probs)
    for i, row_choices in enumerate(choices):
        row_tokens = tokens[2_000 * i : 2_000 * (i + 1)]
        shares = [np.mean((row_tokens == choice).all(axis=1)) for choice in row_choices if choice[0] >= 0]
        assert sum(shares) == 1.0
        log = logs[2_000 * i : 2_000 * (i + 1)].sum(axis=1)
        for share, choice in zip(shares, row_choices, strict=False):
            probability = np.exp(log[(row_tokens == choice).all(axis=1)])
            assert share > 0 and np.ptp(probability) < 1e-5
            assert share == pytest.approx(probability[0], abs=0.04)


def test_no_grammar_allows_every_token():
    grammar = NoGrammar()
    assert (
        grammar.allowed_tokens(grammar.init_state(2), 5) is None
        and not grammar.advance(grammar.init_state(2), jnp.array([1, 2]))[1].any()
    )
