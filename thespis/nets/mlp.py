"""Linear layers and multi-layer perceptrons on single vectors; batch with ``vmap``.

Weights are ``[in, out]`` and activations static, so every leaf of a network is an array.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

Initializer = Callable[[Array, tuple[int, int]], Array]


def orthogonal(scale: float) -> Initializer:
    """Orthogonal initializer, times ``scale`` (Saxe et al., 2014): the usual one of policy-gradient networks."""
    return jax.nn.initializers.orthogonal(scale)


def uniform_fan_in(key: Key[Array, ""], shape: tuple[int, int]) -> Float[Array, "in out"]:
    """Uniform initializer in ``±1/sqrt(in)``: that of DDPG, TD3 and SAC, where biases have it too; ours begin at 0."""
    bound = shape[0] ** -0.5
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


@dataclasses.dataclass(frozen=True)
class UniformLayer:
    """Uniform initializer in ``±1/sqrt(in)`` of a layer's weights and biases alike: PyTorch's of linear layers."""

    def __call__(self, key: Key[Array, ""], shape: tuple[int, int]) -> Float[Array, "in out"]:
        """The weights."""
        return uniform_fan_in(key, shape)

    def draw_bias(self, key: Key[Array, ""], shape: tuple[int, int]) -> Float[Array, " out"]:
        """The biases of the layer with the weights of this ``key`` and shape."""
        bound = shape[0] ** -0.5
        return jax.random.uniform(jax.random.fold_in(key, 1), shape[1:], minval=-bound, maxval=bound)


class Linear(eqx.Module):
    """Linear layer ``x @ weight + bias``; biases are 0 at first, except with :class:`UniformLayer`."""

    weight: Float[Array, "in out"]
    bias: Float[Array, " out"]

    def __init__(self, in_size: int, out_size: int, init: Initializer, key: Key[Array, ""]):
        shape = in_size, out_size
        self.weight = init(key, shape)
        self.bias = init.draw_bias(key, shape) if isinstance(init, UniformLayer) else jnp.zeros(out_size)

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        """One vector in, one vector out."""
        return x @ self.weight + self.bias


class MLP(eqx.Module):
    """Multi-layer perceptron without an output layer: linear layers, each followed by the activation.

    With ``layer_norm``, each layer's outputs are normalized before the activation (Ba et al., 2016).
    """

    layers: tuple[Linear, ...]
    norms: tuple[eqx.nn.LayerNorm, ...]
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        in_size: int,
        hidden_sizes: tuple[int, ...],
        init: Initializer,
        activation: Callable[[Array], Array],
        key: Key[Array, ""],
        layer_norm: bool = False,
    ):
        sizes = (in_size, *hidden_sizes)
        keys = jax.random.split(key, max(len(hidden_sizes), 1))
        self.layers = tuple(Linear(a, b, init, k) for a, b, k in zip(sizes[:-1], sizes[1:], keys, strict=False))
        self.norms = tuple(eqx.nn.LayerNorm(size) for size in hidden_sizes) if layer_norm else ()
        self.activation = activation

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        """Features of one vector; the vector itself if there are no layers."""
        for layer, norm in itertools.zip_longest(self.layers, self.norms):
            x = layer(x)
            x = self.activation(x if norm is None else norm(x))
        return x
