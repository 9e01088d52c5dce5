"""Linear layers and multi-layer perceptrons on single vectors; batch with ``vmap``.

Weights are ``[in, out]`` and activations static, so every leaf of a net is an array.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

Initialiser = Callable[[Array, tuple[int, int]], Array]


def orthogonal(scale: float) -> Initialiser:
    """Orthogonal columns times ``scale`` (Saxe et al., 2014): the usual start of policy-gradient nets."""
    return jax.nn.initializers.orthogonal(scale)


def uniform_fan_in(key: Key[Array, ""], shape: tuple[int, int]) -> Float[Array, "in out"]:
    """Uniform in ``±1/sqrt(in)``: the start with which DDPG, TD3 and SAC were published."""
    bound = shape[0] ** -0.5
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


class Linear(eqx.Module):
    """``x @ weight + bias``."""

    weight: Float[Array, "in out"]
    bias: Float[Array, " out"]

    def __init__(self, size_in: int, size_out: int, init: Initialiser, key: Key[Array, ""]):
        self.weight = init(key, (size_in, size_out))
        self.bias = jnp.zeros(size_out)

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        """One vector in, one vector out."""
        return x @ self.weight + self.bias


class MLP(eqx.Module):
    """Linear layers, each followed by the activation: features, not outputs."""

    layers: tuple[Linear, ...]
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        size_in: int,
        hidden: tuple[int, ...],
        init: Initialiser,
        activation: Callable[[Array], Array],
        key: Key[Array, ""],
    ):
        sizes = (size_in, *hidden)
        keys = jax.random.split(key, max(len(hidden), 1))
        self.layers = tuple(Linear(a, b, init, k) for a, b, k in zip(sizes[:-1], sizes[1:], keys, strict=False))
        self.activation = activation

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        """Features of one vector; the vector itself if there is no layer."""
        for layer in self.layers:
            x = self.activation(layer(x))
        return x
