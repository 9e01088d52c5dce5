"""Critic losses against rlax and by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from thespis.objectives import values


@pytest.mark.parametrize("delta", [0.5, 1.0, 10.0])
def test_huber_equals_rlax(delta):
    error = jnp.linspace(-3, 3, 61)
    np.testing.assert_allclose(values.huber(error, delta), rlax.huber_loss(error, delta), atol=1e-6)
    ours, theirs = (jax.vmap(jax.grad(f))(error, jnp.full(61, delta)) for f in (values.huber, rlax.huber_loss))
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_huber_has_a_gradient_at_zero():
    assert jax.grad(values.huber)(jnp.zeros(()), 1.0) == 0


def test_clipped_value_loss_takes_the_worse_of_the_two():
    old, target = jnp.zeros(4), jnp.array([1.0, 1.0, -1.0, 0.1])
    value = jnp.array([0.1, 0.9, 0.9, 0.15])
    # within the clip; beyond it towards the target (clipped to 0.2); beyond it away from the target; within
    expected = 0.5 * np.array([0.9**2, 0.8**2, 1.9**2, 0.05**2])
    np.testing.assert_allclose(values.clipped_value_loss(value, old, target, 0.2), expected, atol=1e-6)


def test_double_q_equals_rlax_and_never_chooses_what_is_illegal():
    rng = np.random.default_rng(0)
    online, target, q = jnp.asarray(rng.normal(size=(3, 32, 4)), "float32")
    action, reward, discount = jnp.zeros(32, int), jnp.ones(32), jnp.full(32, 0.9)
    td_error = jax.vmap(rlax.double_q_learning)(q, action, reward, discount, target, online)
    ours = reward + discount * jax.vmap(values.double_q)(online, target) - q[:, 0]
    np.testing.assert_allclose(ours, td_error, atol=1e-6)
    legal = jnp.array([False, True, False, False])
    np.testing.assert_array_equal(jax.vmap(lambda o, t: values.double_q(o, t, legal))(online, target), target[:, 1])
