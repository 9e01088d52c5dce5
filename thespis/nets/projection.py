"""Projections: matrix products along the last axis, with optional biases and LoRA adapters."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Float


class LoRAWeights(eqx.Module):
    """LoRA adapter of a projection (Hu et al., 2021): it adds ``scaling * (x @ lora_a) @ lora_b``."""

    lora_a: Float[Array, "*layer in rank"]
    lora_b: Float[Array, "*layer rank out"]
    scaling: float = eqx.field(static=True)


class Projection(eqx.Module):
    """Projection layer ``x @ weight + bias``: products in the dtype of ``x``, sums in float32."""

    weight: Float[Array, "*layer in out"]
    bias: Float[Array, "*layer out"] | None = None
    adapter: LoRAWeights | None = None

    def __call__(self, x: Float[Array, "*axes in"]) -> Float[Array, "*axes out"]:
        """Project the last axis; the output is float32."""
        y = matmul(x, self.weight.astype(x.dtype))
        if self.bias is not None:
            y = y + self.bias
        if self.adapter is not None:
            low = matmul(x, self.adapter.lora_a.astype(x.dtype)).astype(x.dtype)
            y = y + self.adapter.scaling * matmul(low, self.adapter.lora_b.astype(x.dtype))
        return y


def matmul(x: Float[Array, "*axes in"], weight: Float[Array, "in out"]) -> Float[Array, "*axes out"]:
    """Matrix product along the last axis, as a product of two matrices: XLA on CPUs is slow at gradients of more axes.

    Half-precision inputs are summed in float32, which is fast on CPUs; so they are in the gradient, for which the
    incoming gradient is rounded.
    """
    return _matmul(x.reshape(-1, x.shape[-1]), weight).reshape(*x.shape[:-1], -1)


def transpose(x: Float[Array, "row column"]) -> Float[Array, "column row"]:
    """Transpose a matrix; on CPUs half-precision arrays are copied.

    XLA would compute products of a view in float32.
    """
    if x.dtype.itemsize > 2 or jax.default_backend() != "cpu":
        return x.T
    return with_layout_constraint(x.T, Layout((0, 1)))


@jax.custom_vjp
def _matmul(x: Float[Array, "row in"], weight: Float[Array, "in out"]) -> Float[Array, "row out"]:
    return jnp.dot(x, weight, preferred_element_type=jnp.promote_types(x.dtype, jnp.float32))


def _forward(x: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    return _matmul(x, weight), (x, weight)


def _backward(kept: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    x, weight = kept
    rounded = gradient.astype(x.dtype)
    products = _matmul(rounded, transpose(weight)), _matmul(transpose(x), rounded)
    # without the barrier XLA may transpose where it has no half-precision product
    dx, dw = jax.lax.optimization_barrier(products)
    return dx.astype(x.dtype), dw.astype(weight.dtype)


_matmul.defvjp(_forward, _backward)
