"""Projections: products with a matrix, whatever lies before the last axis, and what adapters add to them."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Float


class LowRank(eqx.Module):
    """What an adapter adds to a projection (LoRA: Hu et al., 2021): ``scale * (x @ down) @ up``."""

    down: Float[Array, "*layer in rank"]
    up: Float[Array, "*layer rank out"]
    scale: float = eqx.field(static=True)


class Projection(eqx.Module):
    """``x @ weight + bias``: products in the dtype of ``x``, sums in float32."""

    weight: Float[Array, "*layer in out"]
    bias: Float[Array, "*layer out"] | None = None
    adapter: LowRank | None = None

    def __call__(self, x: Float[Array, "*axes in"]) -> Float[Array, "*axes out"]:
        """Project the last axis; float32 whatever comes in."""
        y = times(x, self.weight.astype(x.dtype))
        if self.bias is not None:
            y = y + self.bias
        if self.adapter is not None:
            low = times(x, self.adapter.down.astype(x.dtype)).astype(x.dtype)
            y = y + self.adapter.scale * times(low, self.adapter.up.astype(x.dtype))
        return y


def times(x: Float[Array, "*axes in"], weight: Float[Array, "in out"]) -> Float[Array, "*axes out"]:
    """The product along the last axis, of two matrices: XLA on CPUs is slow at gradients of more axes.

    Halves are summed in float32, as CPUs are quick at; so they are in the gradient, for which what comes in is rounded.
    """
    return _product(x.reshape(-1, x.shape[-1]), weight).reshape(*x.shape[:-1], -1)


def transposed(x: Float[Array, "row column"]) -> Float[Array, "column row"]:
    """The transpose. On CPUs one of halves is copied: XLA would compute products of a mere view in float32."""
    if x.dtype.itemsize > 2 or jax.default_backend() != "cpu":
        return x.T
    return with_layout_constraint(x.T, Layout((0, 1)))


@jax.custom_vjp
def _product(x: Float[Array, "row in"], weight: Float[Array, "in out"]) -> Float[Array, "row out"]:
    return jnp.dot(x, weight, preferred_element_type=jnp.promote_types(x.dtype, jnp.float32))


def _forward(x: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    return _product(x, weight), (x, weight)


def _backward(kept: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    x, weight = kept
    rounded = gradient.astype(x.dtype)
    both = _product(rounded, transposed(weight)), _product(transposed(x), rounded)
    dx, dw = jax.lax.optimization_barrier(both)  # else XLA may turn what it has no product of halves for
    return dx.astype(x.dtype), dw.astype(weight.dtype)


_product.defvjp(_forward, _backward)
