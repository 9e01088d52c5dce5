"""Projection layers: products and gradients in low precision, against numpy in float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.nets.projection import LoRAWeights, Projection, matmul, transpose

RNG = np.random.default_rng(0)
X, WEIGHT, COTANGENT = RNG.normal(size=(2, 3, 700)), RNG.normal(size=(700, 5)), RNG.normal(size=(2, 3, 5))


def as_float64(*arrays):
    return [np.asarray(x, "float64") for x in arrays]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_products_are_summed_in_float32(dtype):
    x, weight = jnp.asarray(X, dtype), jnp.asarray(WEIGHT, dtype)
    result = matmul(x, weight)
    assert result.dtype == jnp.float32 and result.shape == (2, 3, 5)
    a, b = as_float64(x, weight)
    np.testing.assert_allclose(result, a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_match_rounded_factors(dtype):
    x, weight, cotangent = (jnp.asarray(array, dtype) for array in (X, WEIGHT, COTANGENT))
    x_gradient, weight_gradient = jax.grad(lambda x, w: (matmul(x, w) * COTANGENT).sum(), (0, 1))(x, weight)
    assert x_gradient.dtype == weight_gradient.dtype == x.dtype
    a, b, c = as_float64(x, weight, cotangent)
    tolerance = {"float32": 1e-5, "bfloat16": 2.0**-8}[dtype]  # half a unit in the last place
    np.testing.assert_allclose(*as_float64(x_gradient, c @ b.T), rtol=tolerance, atol=1e-4)
    np.testing.assert_allclose(*as_float64(weight_gradient, np.einsum("ijk,ijl->kl", a, c)), rtol=tolerance, atol=1e-4)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 33, 8), (130, 1, 3), (64, 8, 1)])
def test_bfloat16_gradients_of_any_size_under_vmap(sizes):
    """Shapes without a bfloat16 product in XLA fail only when the program runs."""
    rows, inputs, outputs = sizes
    x = jnp.asarray(RNG.normal(size=(2, rows, inputs)), "bfloat16")
    weight = jnp.asarray(RNG.normal(size=(2, outputs, inputs)), "bfloat16")

    def loss(x, weight):
        return (matmul(x, transpose(weight)) ** 2).sum()

    x_gradient, weight_gradient = jax.jit(jax.vmap(jax.grad(loss, (0, 1))))(x, weight)
    a, b = as_float64(x, weight)
    cotangent = 2 * np.einsum("sri,soi->sro", a, b)
    expected = np.einsum("sro,soi->sri", cotangent, b), np.einsum("sro,sri->soi", cotangent, a)
    for result, reference in zip((x_gradient, weight_gradient), expected, strict=True):
        np.testing.assert_allclose(np.asarray(result, "float64"), reference, atol=0.02 * np.abs(reference).max())


def test_biases_and_adapters_are_added():
    down, up, bias = RNG.normal(size=(700, 2)), RNG.normal(size=(2, 5)), RNG.normal(size=5)
    lora = LoRAWeights(jnp.asarray(down, "float32"), jnp.asarray(up, "float32"), 0.5)
    projection = Projection(jnp.asarray(WEIGHT, "float32"), jnp.asarray(bias, "float32"), lora)
    np.testing.assert_allclose(
        projection(jnp.asarray(X, "float32")), X @ WEIGHT + bias + 0.5 * X @ down @ up, rtol=1e-3
    )
