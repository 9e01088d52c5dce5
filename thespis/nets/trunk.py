"""From many features of an image to a few: what actor and critic put before their own layers (Yarats et al., 2022)."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from thespis.nets.mlp import MLP, Linear, orthogonal


class Trunk(eqx.Module):
    """A linear layer, normalised (Ba et al., 2016), through ``tanh``."""

    linear: Linear
    norm: eqx.nn.LayerNorm

    def __init__(self, size_in: int, size: int, key: Key[Array, ""]):
        self.linear, self.norm = Linear(size_in, size, orthogonal(1.0), key), eqx.nn.LayerNorm(size)

    def __call__(self, features: Float[Array, " in"]) -> Float[Array, " size"]:
        """A few numbers in [-1, 1]."""
        return jnp.tanh(self.norm(self.linear(features)))


class OnTrunk(eqx.Module):
    """Trunk, rectified layers, a linear output; ``beside`` enters behind the trunk."""

    trunk: Trunk
    mlp: MLP
    out: Linear

    def __init__(
        self, size_in: int, trunk: int, beside: int, hidden: tuple[int, ...], size_out: int, key: Key[Array, ""]
    ):
        trunk_key, mlp_key, out_key = jax.random.split(key, 3)
        self.trunk = Trunk(size_in, trunk, trunk_key)
        self.mlp = MLP(trunk + beside, hidden, orthogonal(1.0), jax.nn.relu, mlp_key)
        self.out = Linear(hidden[-1], size_out, orthogonal(1.0), out_key)

    def __call__(
        self, features: Float[Array, " in"], beside: Float[Array, " beside"]
    ) -> tuple[Float[Array, " out"], Float[Array, ""]]:
        """The output, and which share of the rectified units is active."""
        x, active = jnp.concatenate([self.trunk(features), beside]), []
        for layer in self.mlp.layers:
            x = self.mlp.activation(layer(x))
            active.append(x > 0)
        return self.out(x), jnp.mean(jnp.concatenate(active).astype("float32"))
