"""Batch statistics: standardization (also masked and constant) and explained variance, against numpy."""

import jax.numpy as jnp
import numpy as np
import pytest

from thespis.objectives.statistics import explained_variance, standardize


def test_standardize_gives_mean_zero_and_deviation_one():
    x = np.random.default_rng(0).normal(3, 5, (16, 4)).astype("float32")
    np.testing.assert_allclose(standardize(jnp.asarray(x)), (x - x.mean()) / x.std(), atol=1e-5)


@pytest.mark.parametrize("value", [0.0, 0.1, -7.3, 12345.678])
@pytest.mark.parametrize("size", [1, 2, 1000])
def test_standardize_of_equal_entries_is_zero(value, size):
    np.testing.assert_allclose(standardize(jnp.full(size, value, "float32")), np.zeros(size), atol=0.02)


def test_standardize_ignores_masked_entries():
    x = np.random.default_rng(1).normal(size=24).astype("float32")
    mask = np.arange(24) < 17
    garbage = jnp.asarray(np.where(mask, x, np.nan))
    result = standardize(garbage, jnp.asarray(mask))
    np.testing.assert_allclose(result[:17], standardize(jnp.asarray(x[:17])), atol=1e-5)
    np.testing.assert_array_equal(result[17:], np.zeros(7))
    assert np.isfinite(standardize(garbage, jnp.zeros(24, bool))).all()


def test_explained_variance():
    target = jnp.asarray(np.random.default_rng(2).normal(size=50), "float32")
    assert explained_variance(target, target) == 1
    assert explained_variance(target + 5, target) == pytest.approx(1, abs=1e-5)
    assert explained_variance(jnp.zeros(50), target) == pytest.approx(0, abs=1e-6)
    assert explained_variance(-target, target) == pytest.approx(-3, abs=1e-5)
    assert explained_variance(target, jnp.ones(50)) == 0
