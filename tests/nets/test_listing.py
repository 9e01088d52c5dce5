"""What a decoder thinks of listed utterances, against the decoder itself on every whole text."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from made_up import quick_key

from thespis.nets.decoder import Shape, decoder
from thespis.nets.listing import Listing

MODEL = jax.jit(decoder, static_argnums=0)(Shape(11, 32, 2, 2, 1, 16, 48), quick_key(0))
LISTED = ((3, 2), (4, 5, 6, 2), (2,), (4, 2))
LENGTH = 9


def a_text(count: int) -> np.ndarray:
    ids = np.random.default_rng(count).integers(0, 11, LENGTH)
    return np.where(np.arange(LENGTH) < count, ids, -1).astype("int32")


@pytest.mark.parametrize(
    "count", [4, pytest.param(1, marks=pytest.mark.slow), pytest.param(LENGTH, marks=pytest.mark.slow)]
)
def test_utterances_are_as_likely_as_in_whole_texts(count):
    text = a_text(count)
    wholes = [np.array([*text[:count], *ids]) for ids in LISTED]

    @jax.jit
    def both(model, text):
        listing = Listing(model, LISTED)
        features = [model(jnp.asarray(whole), jnp.arange(len(whole))) for whole in wholes]
        alone = model(text[:count], jnp.arange(count))[-1]
        return listing.log_probs(text), [model.logits(x[count - 1 :]) for x in features], listing.before(text), alone

    logs, all_logits, before, alone = both(MODEL, text)
    for number, ids in enumerate(LISTED):
        wanted = 0.0
        for logits, token in zip(np.asarray(all_logits[number], "float64"), ids, strict=False):
            wanted += logits[token] - np.log(np.exp(logits).sum())
        assert float(np.asarray(logs)[number]) == pytest.approx(wanted, abs=1e-4)
    np.testing.assert_allclose(before, alone, atol=1e-4)


def test_of_a_long_text_the_last_ids_are_read():
    @jax.jit
    def told(model, text, rest):
        few, all_of_it = Listing(model, LISTED, recent=4), Listing(model, LISTED)
        return (few.log_probs(text), few.before(text)), (all_of_it.log_probs(rest), all_of_it.before(rest))

    for count in (2, 4, 7):
        rest = np.full(LENGTH, -1, "int32")
        rest[: min(count, 4)] = a_text(count)[max(count - 4, 0) : count]
        for one, other in zip(*told(MODEL, a_text(count), rest), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)


def test_gradients_reach_the_model_as_through_whole_texts():
    text = a_text(5)

    def listed(model):
        return Listing(model, LISTED).log_probs(jnp.asarray(text))[1]

    def whole(model):
        ids = jnp.asarray([*text[:5], *LISTED[1]])
        logs = jax.nn.log_softmax(model.logits(model(ids, jnp.arange(9))))
        return sum(logs[4 + i, token] for i, token in enumerate(LISTED[1]))

    both = jax.jit(lambda model: (jax.grad(listed)(model), jax.grad(whole)(model)))(MODEL)
    for one, other in zip(*map(jax.tree.leaves, both), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)
