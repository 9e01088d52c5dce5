"""A decoder steered by a critic that looks one token ahead, against whole passes over every text that might follow."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.keys import key_of
from thespis.language.generation import Speaker, place
from thespis.language.sampling import Sampling
from thespis.language.steering import ByCritic
from thespis.nets.decoder import Shape, decoder

STOP, LENGTH, WIDTH, BLOCK = 9, 4, 16, 5
SHAPE = Shape(vocabulary=10, width=WIDTH, layers=2, heads=4, kv_heads=2, head_size=4, hidden=20)
MODEL = jax.jit(lambda key: jax.tree.map(lambda x: 4 * x, decoder(SHAPE, key)))(key_of(1))  # far from uniform
WEIGHT = np.random.default_rng(5).normal(size=WIDTH).astype("float32") * 4
BIAS = np.float32(0.3)
TEXTS = [[1, 2, 3], [4], [5, 6, 7, 8, 1]]


def critic(strength: float, likely: int) -> ByCritic:
    return ByCritic(*jax.device_put((WEIGHT, BIAS, np.float32(strength))), likely)


@jax.jit
def read(texts: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Features of the last token of each text, by one pass over all of it, and the model's own probabilities."""
    features = MODEL(jnp.maximum(texts, 0), jnp.where(texts >= 0, jnp.arange(texts.shape[1]), -1))
    last = jnp.take_along_axis(features, (texts >= 0).sum(axis=1)[:, None, None] - 1, axis=1)[:, 0]
    return last, jax.nn.softmax(MODEL.logits(last))


def weighed(text: list[int], strength: float, likely: int) -> np.ndarray:
    """Probabilities of what may follow a text, as the definition has them."""
    texts = np.full((1 + SHAPE.vocabulary, 12), -1)
    texts[:, : len(text)] = text
    texts[1:, len(text)] = np.arange(SHAPE.vocabulary)
    features, probabilities = (np.asarray(x, float) for x in read(texts))
    p, value = probabilities[0], features @ WEIGHT / WIDTH**0.5 + BIAS
    sigmoid = 1 / (1 + np.exp(-value))
    for token in sorted(range(len(p)), key=lambda i: -p[i])[:likely]:
        p[token] *= (sigmoid[1 + token] / sigmoid[0]) ** strength
    return p / p.sum()


@functools.partial(jax.jit, static_argnums=2)
def spoken(steering: ByCritic, sampling: Sampling, slots: int):
    tokens = np.zeros((len(TEXTS), BLOCK), "int32")
    for row, text in zip(tokens, TEXTS, strict=True):
        row[: len(text)] = text
    positions = place(jnp.array([len(t) for t in TEXTS]), jnp.zeros(len(TEXTS), int), BLOCK)
    speak = Speaker(MODEL, sampling, LENGTH, (STOP,), steering=steering)
    return speak(MODEL.empty(len(TEXTS), slots), jnp.asarray(tokens), positions, key_of(0))


FULL, ROOMY = BLOCK + LENGTH - 1, 30


@pytest.mark.parametrize(
    ("strength", "likely", "slots"),
    [(1.0, 3, FULL), (1.0, 3, ROOMY), (2.5, 10, ROOMY), (1.0, 50, FULL),
     pytest.param(2.5, 10, FULL, marks=pytest.mark.slow), pytest.param(1.0, 50, ROOMY, marks=pytest.mark.slow)],
)  # fmt: skip
def test_tokens_are_drawn_as_the_definition_weighs_them(strength, likely, slots):
    drawn, _ = spoken(critic(strength, likely), Sampling(), slots)
    moved, tokens, logs = 0.0, np.asarray(drawn.tokens), np.asarray(drawn.log_probs)
    for row, text in enumerate(TEXTS):
        for i in range(int((tokens[row] >= 0).sum())):
            before, token = [*text, *tokens[row, :i].tolist()], int(tokens[row, i])
            wanted = weighed(before, strength, likely)
            assert np.exp(logs[row, i]) == pytest.approx(wanted[token], abs=1e-4)
            moved = max(moved, np.abs(wanted - weighed(before, 0.0, likely)).max())
    assert moved > 0.1, "the critic says something"


def test_the_likeliest_of_the_weighed_tokens_is_the_greedy_one():
    tokens = np.asarray(spoken(critic(3.0, 3), Sampling(0.0), ROOMY)[0].tokens)
    for row, text in enumerate(TEXTS):
        first = weighed(text, 3.0, 3)
        assert tokens[row, 0] == first.argmax()
    assert any(weighed(text, 3.0, 3).argmax() != weighed(text, 0.0, 3).argmax() for text in TEXTS)


def test_looking_ahead_is_forgotten():
    """What is kept to go on with is what an unsteered speaker keeps that says the same."""
    steered, kept = spoken(critic(0.0, 3), Sampling(), ROOMY)
    plain, wanted = spoken(critic(0.0, 1), Sampling(), ROOMY)
    np.testing.assert_array_equal(steered.tokens, plain.tokens)
    assert kept.used == wanted.used
    for a, b in zip(jax.tree.leaves(kept), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(a, b)
