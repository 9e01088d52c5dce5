"""Products of a projection and their gradients, against numpy in float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.nets.projection import LowRank, Projection, times, transposed

RNG = np.random.default_rng(0)
X, WEIGHT, AFTER = RNG.normal(size=(2, 3, 700)), RNG.normal(size=(700, 5)), RNG.normal(size=(2, 3, 5))


def wide(*arrays):
    return [np.asarray(x, "float64") for x in arrays]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_products_are_summed_in_float32(dtype):
    x, weight = jnp.asarray(X, dtype), jnp.asarray(WEIGHT, dtype)
    found = times(x, weight)
    assert found.dtype == jnp.float32 and found.shape == (2, 3, 5)
    a, b = wide(x, weight)
    np.testing.assert_allclose(found, a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_are_those_of_rounded_factors(dtype):
    x, weight, after = (jnp.asarray(each, dtype) for each in (X, WEIGHT, AFTER))
    of_x, of_weight = jax.grad(lambda x, w: (times(x, w) * AFTER).sum(), (0, 1))(x, weight)
    assert of_x.dtype == of_weight.dtype == x.dtype
    a, b, c = wide(x, weight, after)
    off = {"float32": 1e-5, "bfloat16": 2.0**-8}[dtype]  # half a unit in the last place
    np.testing.assert_allclose(*wide(of_x, c @ b.T), rtol=off, atol=1e-4)
    np.testing.assert_allclose(*wide(of_weight, np.einsum("ijk,ijl->kl", a, c)), rtol=off, atol=1e-4)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 33, 8), (130, 1, 3), (64, 8, 1)])
def test_gradients_of_halves_of_any_size_for_several_seeds_in_one_program(sizes):
    """What XLA has no product of halves for is found when a program runs."""
    rows, inputs, outputs = sizes
    x = jnp.asarray(RNG.normal(size=(2, rows, inputs)), "bfloat16")
    weight = jnp.asarray(RNG.normal(size=(2, outputs, inputs)), "bfloat16")

    def loss(x, weight):
        return (times(x, transposed(weight)) ** 2).sum()

    of_x, of_weight = jax.jit(jax.vmap(jax.grad(loss, (0, 1))))(x, weight)
    a, b = wide(x, weight)
    after = 2 * np.einsum("sri,soi->sro", a, b)
    expected = np.einsum("sro,soi->sri", after, b), np.einsum("sro,sri->soi", after, a)
    for found, right in zip((of_x, of_weight), expected, strict=True):
        np.testing.assert_allclose(np.asarray(found, "float64"), right, atol=0.02 * np.abs(right).max())


def test_biases_and_adapters_are_added():
    down, up, bias = RNG.normal(size=(700, 2)), RNG.normal(size=(2, 5)), RNG.normal(size=5)
    low = LowRank(jnp.asarray(down, "float32"), jnp.asarray(up, "float32"), 0.5)
    part = Projection(jnp.asarray(WEIGHT, "float32"), jnp.asarray(bias, "float32"), low)
    np.testing.assert_allclose(part(jnp.asarray(X, "float32")), X @ WEIGHT + bias + 0.5 * X @ down @ up, rtol=1e-3)
