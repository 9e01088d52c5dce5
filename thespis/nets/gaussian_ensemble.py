"""Ensemble of networks with Gaussian outputs: the probabilistic ensemble of PETS and MBPO.

The members' weights are stacked ``[member, in, out]``, so that the whole ensemble is one batched product per layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from thespis.objectives.gaussian_likelihood import soft_bound


class EnsembleLinear(eqx.Module):
    """Linear layers of all members of an ensemble; weights are truncated normal with deviation ``1/(2 sqrt(in))``."""

    weight: Float[Array, "member in out"]
    bias: Float[Array, "member out"]

    def __init__(self, num_members: int, in_size: int, out_size: int, key: Key[Array, ""]):
        shape = (num_members, in_size, out_size)
        self.weight = jax.random.truncated_normal(key, -2.0, 2.0, shape) / (2 * in_size**0.5)
        self.bias = jnp.zeros((num_members, out_size))

    def __call__(self, x: Float[Array, "member row in"]) -> Float[Array, "member row out"]:
        """Rows of every member through its own layer."""
        return jnp.einsum("mri,mio->mro", x, self.weight) + self.bias[:, None]


class GaussianPrediction(NamedTuple):
    """Outputs of an ensemble: mean and log-variance of each number, and further outputs without a variance."""

    mean: Float[Array, "member *row out"]
    log_variance: Float[Array, "member *row out"]
    logits: Float[Array, "member *row extra"]


class GaussianEnsemble(eqx.Module):
    """Ensemble of multi-layer perceptrons with a diagonal Gaussian output; log-variances have learned bounds.

    The bounds are the same for all members. The lower one is at least ``lowest_log_variance``: of a constant target, it
    would fall for ever, and gradients grow with its inverse. ``num_logits`` further outputs have no variance.
    """

    layers: tuple[EnsembleLinear, ...]
    min_log_variance: Float[Array, " out"]
    max_log_variance: Float[Array, " out"]
    activation: Callable[[Array], Array] = eqx.field(static=True)
    lowest_log_variance: float = eqx.field(static=True)

    def __init__(
        self,
        num_members: int,
        in_size: int,
        hidden_sizes: tuple[int, ...],
        out_size: int,
        key: Key[Array, ""],
        *,
        num_logits: int = 0,
        activation: Callable[[Array], Array] = jax.nn.silu,
        lowest_log_variance: float = -10.0,
    ):
        sizes = (in_size, *hidden_sizes, 2 * out_size + num_logits)
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = tuple(
            EnsembleLinear(num_members, a, b, k) for a, b, k in zip(sizes[:-1], sizes[1:], keys, strict=True)
        )
        self.min_log_variance = jnp.full(out_size, lowest_log_variance, "float32")
        self.max_log_variance = jnp.full(out_size, 0.5, "float32")
        self.activation, self.lowest_log_variance = activation, lowest_log_variance

    @property
    def num_members(self) -> int:
        """Number of networks."""
        return self.layers[0].weight.shape[0]

    def __call__(self, x: Float[Array, "member row in"]) -> GaussianPrediction:
        """Predictions of every member for rows of its own."""
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        x, out_size = self.layers[-1](x), self.min_log_variance.shape[0]
        low = jnp.maximum(self.min_log_variance, self.lowest_log_variance)
        log_variance = soft_bound(x[..., out_size : 2 * out_size], low, self.max_log_variance)
        return GaussianPrediction(x[..., :out_size], log_variance, x[..., 2 * out_size :])

    def predict(self, x: Float[Array, " in"]) -> GaussianPrediction:
        """Predictions of every member ``[member, out]`` for one input."""
        rows = jnp.broadcast_to(x, (self.num_members, 1, *x.shape))
        return GaussianPrediction(*(leaf[:, 0] for leaf in self(rows)))

    def select(self, members: Array) -> GaussianEnsemble:
        """The ensemble of some members."""
        layers = jax.tree.map(lambda x: x[members], self.layers)
        return eqx.tree_at(lambda net: net.layers, self, layers)
