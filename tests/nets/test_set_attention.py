"""Set attention encoder: against the explicit weighted sum, and its invariances."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.core.spaces import Box, Discrete, dict_space
from thespis.nets.body import Encoder
from thespis.nets.set_attention import SetAttention

SPACE = dict_space(others=Box((4, 3)), own=Box((2,)), which=Discrete(3))
ENCODER = Encoder(SPACE, jax.random.key(0), set_encoder=SetAttention(5))
ROWS = np.array([[1.0, 0.5, -0.2], [0.0, 0.0, 0.0], [1.0, -1.0, 0.3], [1.0, 0.1, 0.9]])


def features(rows, own=(0.4, -0.7), which=1):
    obs = {"others": jnp.asarray(rows), "own": jnp.asarray(own), "which": jnp.int32(which)}
    return np.asarray(ENCODER(obs))


def test_attention_is_a_weighted_mean_over_present_rows():
    flat, attention = np.array([0.4, -0.7, 0.0, 1.0, 0.0]), ENCODER.set_encoders[0]
    query, present = flat @ attention.query.weight + attention.query.bias, ROWS[[0, 2, 3]]
    scores = np.exp((present @ attention.keys.weight + attention.keys.bias) @ query / np.sqrt(5))
    values = np.tanh(present @ attention.values.weight + attention.values.bias)
    np.testing.assert_allclose(features(ROWS), [*flat, *(scores / scores.sum() @ values)], atol=1e-5)
    assert ENCODER.feature_size == 10


def test_attention_ignores_order_and_absent_rows_but_not_the_query():
    np.testing.assert_allclose(features(ROWS), features(ROWS[[3, 1, 0, 2]]), atol=1e-6)
    assert not np.allclose(features(ROWS)[5:], features(ROWS, which=2)[5:], atol=1e-3)
    assert features(np.zeros((4, 3)))[5:].tolist() == [0.0] * 5
    gradient = jax.grad(lambda rows: ENCODER({"others": rows, "own": jnp.ones(2), "which": jnp.int32(0)})[5:].sum())
    assert np.all(np.isfinite(gradient(jnp.zeros((4, 3)))))


def test_sets_are_flattened_without_attention_and_need_a_query():
    assert Encoder(SPACE, jax.random.key(0)).feature_size == 12 + 5
    with pytest.raises(UserError, match="has only sets"):
        Encoder(Box((4, 3)), jax.random.key(0), set_encoder=SetAttention())
