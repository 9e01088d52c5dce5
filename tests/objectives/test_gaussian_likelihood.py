"""Gaussian likelihood and soft bounds against their formulas in double precision, with gradients by differences."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from thespis.objectives.gaussian_likelihood import gaussian_nll, soft_bound


def test_likelihood_and_its_gradient():
    rng = np.random.default_rng(0)
    for _ in range(10):
        mean, log_variance, target = rng.normal(size=(3, 4))
        density = stats.norm.logpdf(target, mean, np.exp(log_variance / 2))
        expected = np.mean(-2 * density - np.log(2 * np.pi))
        args = tuple(jnp.asarray(x, "float32") for x in (mean, log_variance, target))
        np.testing.assert_allclose(gaussian_nll(*args), expected, rtol=1e-4)
        ours = jax.grad(gaussian_nll, argnums=(0, 1, 2))(*args)

        def objective(mean, log_variance, target):
            return np.mean(-2 * stats.norm.logpdf(target, mean, np.exp(log_variance / 2)))

        for argument in range(3):
            for i in range(4):
                sides = []
                for sign in (1, -1):
                    moved = [np.array(x) for x in (mean, log_variance, target)]
                    moved[argument][i] += sign * 1e-5
                    sides.append(objective(*moved))
                np.testing.assert_allclose(ours[argument][i], (sides[0] - sides[1]) / 2e-5, rtol=1e-3, atol=1e-4)


def test_soft_bounds():
    x = np.linspace(-40, 40, 81)
    low, high = -10.0, 0.5
    expected = high - np.logaddexp(0, high - x)
    expected = low + np.logaddexp(0, expected - low)
    ours = np.asarray(soft_bound(jnp.asarray(x, "float32"), jnp.float32(low), jnp.float32(high)))
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)
    assert ours.min() >= low and ours.max() < high + 1e-3 and np.all(np.diff(ours) >= 0)
    middle = (x > -7) & (x < -3)
    np.testing.assert_allclose(ours[middle], x[middle], atol=0.1)
    gradients = jax.vmap(jax.grad(soft_bound, argnums=(0, 1, 2)), (0, None, None))(
        jnp.asarray(x, "float32"), jnp.float32(low), jnp.float32(high)
    )
    assert gradients[1][0] > 0.99 and gradients[2][-1] > 0.99  # beyond a bound, the bound is learned
