"""Attention over others against the sum written out, and what it must not care for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.core.spaces import Box, Discrete, dict_space
from thespis.nets.body import Encoder
from thespis.nets.relations import Attention

SPACE = dict_space(others=Box((4, 3)), own=Box((2,)), which=Discrete(3))
NET = Encoder(SPACE, jax.random.key(0), others=Attention(5))
ROWS = np.array([[1.0, 0.5, -0.2], [0.0, 0.0, 0.0], [1.0, -1.0, 0.3], [1.0, 0.1, 0.9]])


def features(rows, own=(0.4, -0.7), which=1):
    seen = {"others": jnp.asarray(rows), "own": jnp.asarray(own), "which": jnp.int32(which)}
    return np.asarray(NET(seen))


def test_others_become_a_weighted_mean_of_those_who_are_there():
    flat, net = np.array([0.4, -0.7, 0.0, 1.0, 0.0]), NET.attended[0]
    query, there = flat @ net.query.weight + net.query.bias, ROWS[[0, 2, 3]]
    scores = np.exp((there @ net.keys.weight + net.keys.bias) @ query / np.sqrt(5))
    values = np.tanh(there @ net.values.weight + net.values.bias)
    np.testing.assert_allclose(features(ROWS), [*flat, *(scores / scores.sum() @ values)], atol=1e-5)
    assert NET.size == 10


def test_order_and_absence_mean_nothing_and_who_asks_does():
    np.testing.assert_allclose(features(ROWS), features(ROWS[[3, 1, 0, 2]]), atol=1e-6)
    assert not np.allclose(features(ROWS)[5:], features(ROWS, which=2)[5:], atol=1e-3)
    assert features(np.zeros((4, 3)))[5:].tolist() == [0.0] * 5
    slope = jax.grad(lambda rows: NET({"others": rows, "own": jnp.ones(2), "which": jnp.int32(0)})[5:].sum())
    assert np.all(np.isfinite(slope(jnp.zeros((4, 3)))))


def test_without_attention_a_set_is_laid_flat_and_nobody_to_ask_is_refused():
    assert Encoder(SPACE, jax.random.key(0)).size == 12 + 5
    with pytest.raises(UserError, match="shows nothing else"):
        Encoder(Box((4, 3)), jax.random.key(0), others=Attention())
