"""Distributions on atoms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from thespis.objectives.categorical import cross_entropy, projected

RNG = np.random.default_rng(0)
ATOMS = jnp.linspace(-3.0, 5.0, 9)


def drawn(n):
    return jnp.asarray(RNG.dirichlet(np.ones(n)), "float32")


def by_neighbours(values, chances, atoms):
    """Algorithm 1 of Bellemare et al., 2017, atom by atom."""
    found, step = np.zeros(len(atoms)), atoms[1] - atoms[0]
    for value, chance in zip(values, chances, strict=True):
        place = (min(max(value, atoms[0]), atoms[-1]) - atoms[0]) / step
        low, high = int(np.floor(place)), int(np.ceil(place))
        found[low] += chance * (high - place) if high > low else chance
        found[high] += chance * (place - low)
    return found


@pytest.mark.parametrize(("shift", "shrink"), [(0.0, 1.0), (0.5, 0.9), (-7.3, 0.5), (20.0, 0.99), (1.0, 0.0)])
def test_a_moved_distribution_is_brought_back(shift, shrink):
    chances = drawn(9)
    values = shift + shrink * ATOMS
    found = projected(values, chances, ATOMS)
    np.testing.assert_allclose(found, by_neighbours(*map(np.float64, (values, chances, ATOMS))), atol=2e-6)
    np.testing.assert_allclose(found, rlax.categorical_l2_project(values, chances, ATOMS), atol=2e-6)
    assert found.sum() == pytest.approx(1.0, abs=1e-5)


def test_within_the_range_the_mean_is_kept():
    chances, values = drawn(4), jnp.array([-2.9, 0.1, 3.3, 4.99])
    assert projected(values, chances, ATOMS) @ ATOMS == pytest.approx(float(chances @ values), abs=1e-5)
    assert projected(values + 9.0, chances, ATOMS) @ ATOMS < float(chances @ values) + 8.0  # what is outside is cut


def test_cross_entropy_is_least_at_the_target():
    """Its slope there is ``p - m``: nothing. Beside the entropy of the target it is their divergence."""
    target, logits = drawn(9), jnp.asarray(RNG.normal(size=9), "float32")
    np.testing.assert_allclose(jax.grad(lambda x: cross_entropy(target, x))(logits), jax.nn.softmax(logits) - target,
                               atol=1e-6)  # fmt: skip
    t, p = np.asarray(target, np.float64), np.asarray(jax.nn.softmax(logits), np.float64)
    assert cross_entropy(target, logits) == pytest.approx(np.sum(t * np.log(t / p)) - np.sum(t * np.log(t)), rel=1e-5)
