"""Batch renormalization against NumPy: statistics of batches, corrections, masks, gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.nets.batch_renorm import BatchRenorm, BatchRenormMLP, BatchStatistics, repeat_row, sum_rows

ROWS = np.random.default_rng(0).normal(loc=(2.0, -1.0, 0.5), scale=(1.5, 0.8, 1.2), size=(64, 3)).astype("float32")
X, EVEN = jnp.asarray(ROWS), jnp.full(64, 1 / 64)
RUNNING = BatchStatistics(jnp.array([1.8, -0.9, 0.4]), jnp.array([2.0, 0.7, 1.3]), jnp.asarray(10, "int32"))


def layer(num_warmup_batches: int) -> BatchRenorm:
    return BatchRenorm(jnp.array([1.0, 2.0, 0.5]), jnp.array([0.0, 1.0, -1.0]), num_warmup_batches)


def test_during_warmup_a_batch_is_normalized_by_its_own_statistics():
    norm = layer(11)
    out, after = norm.train(RUNNING, X, EVEN)
    expected = (ROWS - ROWS.mean(0)) / np.sqrt(ROWS.var(0) + 1e-3)
    np.testing.assert_allclose(out, expected * [1.0, 2.0, 0.5] + [0.0, 1.0, -1.0], atol=2e-5)
    np.testing.assert_allclose(after.mean, 0.99 * RUNNING.mean + 0.01 * ROWS.mean(0), rtol=1e-5)
    np.testing.assert_allclose(after.variance, 0.99 * RUNNING.variance + 0.01 * ROWS.var(0), rtol=1e-5)
    assert after.num_batches == 11


def test_after_warmup_training_and_acting_normalize_alike_within_the_bounds():
    norm = layer(10)
    out, _ = norm.train(RUNNING, X, EVEN)
    np.testing.assert_allclose(out, jax.vmap(lambda x: norm(RUNNING, x))(X), atol=2e-5)


def test_corrections_are_bounded():
    far = BatchStatistics(jnp.full(3, -100.0), jnp.full(3, 1e-4), jnp.asarray(10, "int32"))
    out, _ = BatchRenorm(jnp.ones(3), jnp.zeros(3), 10).train(far, X, EVEN)
    expected = (ROWS - ROWS.mean(0)) / np.sqrt(ROWS.var(0) + 1e-3) * 3.0 + 5.0
    np.testing.assert_allclose(out, expected, atol=1e-4)


def test_masked_rows_do_not_count():
    mlp = BatchRenormMLP(3, (4,), jax.random.key(0), num_warmup_batches=5)
    out, after = mlp.train(mlp.init_statistics(), X, jnp.arange(64) < 40)
    kept, kept_after = mlp.train(mlp.init_statistics(), X[:40])
    np.testing.assert_allclose(out[:40], kept, atol=1e-5)
    for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(kept_after), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("num_warmup_batches", [11, 10])
def test_gradient_passes_through_the_batch_and_not_through_the_corrections(num_warmup_batches):
    norm, direction = layer(num_warmup_batches), np.random.default_rng(1).normal(size=(64, 3)).astype("float32")

    def frozen(x):  # in float64, with the corrections of ROWS
        std = np.sqrt(np.asarray(RUNNING.variance) + 1e-3)
        ratio, shift = np.sqrt(ROWS.var(0) + 1e-3) / std, (ROWS.mean(0) - np.asarray(RUNNING.mean)) / std
        if num_warmup_batches == 11:
            ratio, shift = 1.0, 0.0
        out = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-3) * ratio + shift
        return np.sum(np.sin(out * [1.0, 2.0, 0.5] + [0.0, 1.0, -1.0]))

    gradient = jax.grad(lambda x: jnp.sum(jnp.sin(norm.train(RUNNING, x, EVEN)[0])))(X)
    wide, step = ROWS.astype("float64"), 1e-5 * direction.astype("float64")
    numeric = (frozen(wide + step) - frozen(wide - step)) / 2e-5
    assert np.sum(np.asarray(gradient) * direction) == pytest.approx(numeric, rel=1e-3)


def test_sums_by_products_and_their_gradients_equal_plain_ones_under_every_vmap():
    rng = np.random.default_rng(2)
    weight, x, row, y = (
        jnp.asarray(rng.normal(size=size), "float32") for size in ((3, 6), (3, 2, 6, 4), (3, 2, 4), (6, 4))
    )

    def by_products(weight, x, row):
        return jnp.sum(jnp.sin(sum_rows(weight, x))) + jnp.sum(repeat_row(row, 6) * y)

    def plain(weight, x, row):
        return jnp.sum(jnp.sin(jnp.sum(weight[:, None] * x, axis=0))) + jnp.sum(row * y)

    results = [
        jax.vmap(jax.vmap(jax.value_and_grad(f, argnums=(0, 1, 2)), (None, 0, 0)))(weight, x, row)
        for f in (by_products, plain)
    ]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), *results)
