"""Categorical return distributions: projection and cross-entropy, against loops, rlax and numpy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from thespis.objectives.distributional import categorical_cross_entropy, project_categorical

RNG = np.random.default_rng(0)
ATOMS = jnp.linspace(-3.0, 5.0, 9)


def random_probs(n):
    return jnp.asarray(RNG.dirichlet(np.ones(n)), "float32")


def project_by_loop(values, probs, atoms):
    """Algorithm 1 of Bellemare et al., 2017, atom by atom."""
    projected, step = np.zeros(len(atoms)), atoms[1] - atoms[0]
    for value, prob in zip(values, probs, strict=True):
        position = (min(max(value, atoms[0]), atoms[-1]) - atoms[0]) / step
        low, high = int(np.floor(position)), int(np.ceil(position))
        projected[low] += prob * (high - position) if high > low else prob
        projected[high] += prob * (position - low)
    return projected


@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1.0), (0.5, 0.9), (-7.3, 0.5), (20.0, 0.99), (1.0, 0.0)])
def test_projection_matches_a_loop_and_rlax(shift, scale):
    probs = random_probs(9)
    values = shift + scale * ATOMS
    projected = project_categorical(values, probs, ATOMS)
    np.testing.assert_allclose(projected, project_by_loop(*map(np.float64, (values, probs, ATOMS))), atol=2e-6)
    np.testing.assert_allclose(projected, rlax.categorical_l2_project(values, probs, ATOMS), atol=2e-6)
    assert projected.sum() == pytest.approx(1.0, abs=1e-5)


def test_projection_keeps_the_mean_within_the_support():
    probs, values = random_probs(4), jnp.array([-2.9, 0.1, 3.3, 4.99])
    assert project_categorical(values, probs, ATOMS) @ ATOMS == pytest.approx(float(probs @ values), abs=1e-5)
    # values outside the support are clipped
    assert project_categorical(values + 9.0, probs, ATOMS) @ ATOMS < float(probs @ values) + 8.0


def test_cross_entropy_gradient_and_value():
    """The gradient is ``p - m``, zero at the target; the value is the KL divergence plus the target's entropy."""
    target, logits = random_probs(9), jnp.asarray(RNG.normal(size=9), "float32")
    np.testing.assert_allclose(
        jax.grad(lambda x: categorical_cross_entropy(target, x))(logits), jax.nn.softmax(logits) - target, atol=1e-6
    )
    t, p = np.asarray(target, np.float64), np.asarray(jax.nn.softmax(logits), np.float64)
    assert categorical_cross_entropy(target, logits) == pytest.approx(
        np.sum(t * np.log(t / p)) - np.sum(t * np.log(t)), rel=1e-5
    )
