"""Critic-guided decoding with one-token lookahead, against full passes over every possible next token."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.language.generation import CriticLogitsProcessor, ResponseGenerator, block_positions
from thespis.language.sampling import TemperatureSampler
from thespis.nets.decoder import DecoderConfig, init_decoder
from thespis.runtime.keys import seed_key

STOP, LENGTH, WIDTH, BLOCK = 9, 4, 16, 5
CONFIG = DecoderConfig(
    vocab_size=10, hidden_size=WIDTH, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=4, intermediate_size=20
)
MODEL = jax.jit(lambda key: jax.tree.map(lambda x: 4 * x, init_decoder(CONFIG, key)))(seed_key(1))  # far from uniform
WEIGHT = np.random.default_rng(5).normal(size=WIDTH).astype("float32") * 4
BIAS = np.float32(0.3)
TEXTS = [[1, 2, 3], [4], [5, 6, 7, 8, 1]]


def critic(strength: float, top_k: int) -> CriticLogitsProcessor:
    return CriticLogitsProcessor(*jax.device_put((WEIGHT, BIAS, np.float32(strength))), top_k)


@jax.jit
def read(texts: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Features and next-token probabilities at the last token of each text, by one full pass."""
    features = MODEL(jnp.maximum(texts, 0), jnp.where(texts >= 0, jnp.arange(texts.shape[1]), -1))
    last = jnp.take_along_axis(features, (texts >= 0).sum(axis=1)[:, None, None] - 1, axis=1)[:, 0]
    return last, jax.nn.softmax(MODEL.logits(last))


def reweighted_probs(text: list[int], strength: float, top_k: int) -> np.ndarray:
    """Next-token probabilities after a text, by the definition."""
    texts = np.full((1 + CONFIG.vocab_size, 12), -1)
    texts[:, : len(text)] = text
    texts[1:, len(text)] = np.arange(CONFIG.vocab_size)
    features, probabilities = (np.asarray(x, float) for x in read(texts))
    p, value = probabilities[0], features @ WEIGHT / WIDTH**0.5 + BIAS
    sigmoid = 1 / (1 + np.exp(-value))
    for token in sorted(range(len(p)), key=lambda i: -p[i])[:top_k]:
        p[token] *= (sigmoid[1 + token] / sigmoid[0]) ** strength
    return p / p.sum()


@functools.partial(jax.jit, static_argnums=2)
def generate(processor: CriticLogitsProcessor, sampling: TemperatureSampler, slots: int):
    tokens = np.zeros((len(TEXTS), BLOCK), "int32")
    for row, text in zip(tokens, TEXTS, strict=True):
        row[: len(text)] = text
    positions = block_positions(jnp.array([len(t) for t in TEXTS]), jnp.zeros(len(TEXTS), int), BLOCK)
    generator = ResponseGenerator(MODEL, sampling, LENGTH, (STOP,), logits_processor=processor)
    return generator(MODEL.init_cache(len(TEXTS), slots), jnp.asarray(tokens), positions, seed_key(0))


FULL, ROOMY = BLOCK + LENGTH - 1, 30


@pytest.mark.long
@pytest.mark.parametrize(
    ("strength", "top_k", "slots"),
    [
        (1.0, 3, FULL),
        (1.0, 3, ROOMY),
        (2.5, 10, ROOMY),
        (1.0, 50, FULL),
        pytest.param(2.5, 10, FULL, marks=pytest.mark.slow),
        pytest.param(1.0, 50, ROOMY, marks=pytest.mark.slow),
    ],
)
def test_sampling_matches_the_definition(strength, top_k, slots):
    response, _ = generate(critic(strength, top_k), TemperatureSampler(), slots)
    max_change, tokens, logs = 0.0, np.asarray(response.tokens), np.asarray(response.log_probs)
    for row, text in enumerate(TEXTS):
        for i in range(int((tokens[row] >= 0).sum())):
            prefix, token = [*text, *tokens[row, :i].tolist()], int(tokens[row, i])
            expected = reweighted_probs(prefix, strength, top_k)
            assert np.exp(logs[row, i]) == pytest.approx(expected[token], abs=1e-4)
            max_change = max(max_change, np.abs(expected - reweighted_probs(prefix, 0.0, top_k)).max())
    assert max_change > 0.1, "the critic changes probabilities"


def test_greedy_token_has_the_highest_reweighted_probability():
    tokens = np.asarray(generate(critic(3.0, 3), TemperatureSampler(0.0), ROOMY)[0].tokens)
    for row, text in enumerate(TEXTS):
        first = reweighted_probs(text, 3.0, 3)
        assert tokens[row, 0] == first.argmax()
    assert any(reweighted_probs(text, 3.0, 3).argmax() != reweighted_probs(text, 0.0, 3).argmax() for text in TEXTS)


@pytest.mark.long
def test_lookahead_leaves_no_trace_in_the_cache():
    """The cache equals the cache of unguided generation of the same tokens."""
    guided, cache = generate(critic(0.0, 3), TemperatureSampler(), ROOMY)
    plain, expected_cache = generate(critic(0.0, 1), TemperatureSampler(), ROOMY)
    np.testing.assert_array_equal(guided.tokens, plain.tokens)
    assert cache.num_used == expected_cache.num_used
    for a, b in zip(jax.tree.leaves(cache), jax.tree.leaves(expected_cache), strict=True):
        np.testing.assert_array_equal(a, b)
