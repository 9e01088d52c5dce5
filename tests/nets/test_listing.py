"""What a decoder thinks of listed utterances, against the decoder itself on every whole text."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.keys import key_of
from thespis.nets.decoder import Shape, decoder
from thespis.nets.listing import Listing

MODEL = decoder(Shape(11, 32, 2, 2, 1, 16, 48), key_of(0))
LISTED = ((3, 2), (4, 5, 6, 2), (2,), (4, 2))
LENGTH = 9


def a_text(count: int) -> np.ndarray:
    ids = np.random.default_rng(count).integers(0, 11, LENGTH)
    return np.where(np.arange(LENGTH) < count, ids, -1).astype("int32")


@pytest.mark.parametrize(
    "count", [4, pytest.param(1, marks=pytest.mark.slow), pytest.param(LENGTH, marks=pytest.mark.slow)]
)
def test_utterances_are_as_likely_as_in_whole_texts(count):
    listing, text = Listing(MODEL, LISTED), a_text(count)
    logs = jax.jit(lambda text: listing.log_probs(text))(text)
    for number, ids in enumerate(LISTED):
        whole = jnp.asarray([*text[:count], *ids])
        features = MODEL(whole, jnp.arange(len(whole)))
        wanted = 0.0
        for i, token in enumerate(ids):
            logits = np.asarray(MODEL.logits(features[count + i - 1]), "float64")
            wanted += logits[token] - np.log(np.exp(logits).sum())
        assert float(logs[number]) == pytest.approx(wanted, abs=1e-4)
    alone = MODEL(jnp.asarray(text[:count]), jnp.arange(count))[-1]
    np.testing.assert_allclose(listing.before(jnp.asarray(text)), alone, atol=1e-4)


def test_of_a_long_text_the_last_ids_are_read():
    few = Listing(MODEL, LISTED, recent=4)
    for count in (2, 4, 7):
        rest = jnp.full(LENGTH, -1, "int32").at[: min(count, 4)].set(a_text(count)[max(count - 4, 0) : count])
        text, all_of_it = jnp.asarray(a_text(count)), Listing(MODEL, LISTED)
        np.testing.assert_allclose(few.log_probs(text), all_of_it.log_probs(rest), atol=1e-5)
        np.testing.assert_allclose(few.before(text), all_of_it.before(rest), atol=1e-5)


def test_gradients_reach_the_model_as_through_whole_texts():
    text = a_text(5)

    def listed(model):
        return Listing(model, LISTED).log_probs(jnp.asarray(text))[1]

    def whole(model):
        ids = jnp.asarray([*text[:5], *LISTED[1]])
        logs = jax.nn.log_softmax(model.logits(model(ids, jnp.arange(9))))
        return sum(logs[4 + i, token] for i, token in enumerate(LISTED[1]))

    for one, other in zip(*map(jax.tree.leaves, (jax.grad(listed)(MODEL), jax.grad(whole)(MODEL))), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)
