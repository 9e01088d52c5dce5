"""Critic losses (Huber, clipped, double Q, Gaussian return): against rlax, hand values and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from thespis.objectives import value_losses


@pytest.mark.parametrize("delta", [0.5, 1.0, 10.0])
def test_huber_equals_rlax(delta):
    error = jnp.linspace(-3, 3, 61)
    np.testing.assert_allclose(value_losses.huber_loss(error, delta), rlax.huber_loss(error, delta), atol=1e-6)
    ours, theirs = (
        jax.vmap(jax.grad(f))(error, jnp.full(61, delta)) for f in (value_losses.huber_loss, rlax.huber_loss)
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("delta", [1e6, 1e9])
def test_a_large_delta_gives_the_gradient_of_the_square(delta):
    """Also of errors that are far smaller than the precision of ``delta``."""
    error = jnp.asarray([1e-4, -0.01, 0.03, 2.0])
    gradient = jax.jit(jax.vmap(jax.grad(lambda e: value_losses.huber_loss(e, delta))))(error)
    np.testing.assert_allclose(gradient, error, rtol=1e-6)


def test_huber_has_a_gradient_at_zero():
    assert jax.grad(value_losses.huber_loss)(jnp.zeros(()), 1.0) == 0


def test_clipped_value_loss_takes_the_larger_loss():
    old, target = jnp.zeros(4), jnp.array([1.0, 1.0, -1.0, 0.1])
    value = jnp.array([0.1, 0.9, 0.9, 0.15])
    # within the clip; beyond it towards the target (clipped to 0.2); beyond it away from the target; within
    expected = 0.5 * np.array([0.9**2, 0.8**2, 1.9**2, 0.05**2])
    np.testing.assert_allclose(value_losses.clipped_value_loss(value, old, target, 0.2), expected, atol=1e-6)


def test_double_q_equals_rlax_and_respects_the_action_mask():
    rng = np.random.default_rng(0)
    online, target, q = jnp.asarray(rng.normal(size=(3, 32, 4)), "float32")
    action, reward, discount = jnp.zeros(32, int), jnp.ones(32), jnp.full(32, 0.9)
    td_error = jax.vmap(rlax.double_q_learning)(q, action, reward, discount, target, online)
    ours = reward + discount * jax.vmap(value_losses.double_q_value)(online, target) - q[:, 0]
    np.testing.assert_allclose(ours, td_error, atol=1e-6)
    legal = jnp.array([False, True, False, False])
    np.testing.assert_array_equal(
        jax.vmap(lambda o, t: value_losses.double_q_value(o, t, legal))(online, target), target[:, 1]
    )


def split_likelihood(q, sigma, y, bound, constants):
    """DSAC's loss in float64; ``constants`` are the values without gradient in the paper."""
    center, width = constants
    clipped = center + np.clip(y - center, -bound, bound)
    return (y - q) ** 2 / (2 * width**2) + (clipped - center) ** 2 / (2 * sigma**2) + np.log(sigma)


def test_gaussian_return_loss_and_gradients_by_finite_differences():
    rng, bound, step = np.random.default_rng(0), 1.5, 1e-6
    q, y = rng.normal(0, 3, (2, 200))
    sigma = rng.uniform(0.3, 3, 200)
    ours = jax.vmap(value_losses.gaussian_return_loss, in_axes=(0, 0, 0, None))
    inputs = [jnp.asarray(x, "float32") for x in (q, sigma, y)]
    np.testing.assert_allclose(ours(*inputs, bound), split_likelihood(q, sigma, y, bound, (q, sigma)), rtol=1e-4)

    def finite_difference(dq, dsigma):
        up, down = (split_likelihood(q + s * dq, sigma + s * dsigma, y, bound, (q, sigma)) for s in (step, -step))
        return (up - down) / (2 * step)

    gradients = finite_difference(1, 0), finite_difference(0, 1)
    gradient = jax.vmap(jax.grad(value_losses.gaussian_return_loss, argnums=(0, 1)), in_axes=(0, 0, 0, None))(
        *inputs, bound
    )
    for result, expected in zip(gradient, gradients, strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-4)


def test_gaussian_return_gradient_is_the_likelihood_gradient_within_the_bound():
    """Within the bound the gradient equals that of the negative log-density."""
    rng = np.random.default_rng(1)
    q, y = jnp.asarray(rng.normal(size=(2, 64)), "float32")
    sigma = jnp.asarray(rng.uniform(0.5, 2, 64), "float32")

    def negative_log_density(q, sigma, y):
        return -jax.scipy.stats.norm.logpdf(y, q, sigma)

    gradients = jax.vmap(jax.grad(negative_log_density, argnums=(0, 1)))(q, sigma, y)
    loss = jax.grad(value_losses.gaussian_return_loss, argnums=(0, 1))
    for result, expected in zip(jax.vmap(loss, in_axes=(0, 0, 0, None))(q, sigma, y, 100.0), gradients, strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_td_bound_limits_the_deviation_gradient_only():
    loss = jax.vmap(jax.grad(value_losses.gaussian_return_loss, argnums=(0, 1)), in_axes=(None, None, 0, None))
    mean, deviation = loss(jnp.zeros(()), jnp.ones(()), jnp.array([2.0, 10.0, -1000.0]), 2.0)
    np.testing.assert_allclose(mean, [-2.0, -10.0, 1000.0])
    np.testing.assert_allclose(deviation, -3.0)  # -(b^2 - sigma^2) / sigma^3, for any distant target
