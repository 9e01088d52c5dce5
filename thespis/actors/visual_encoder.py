"""Actor and critics on the features of a visual encoder: a deterministic actor, and the Q-values of an ensemble.

The encoder is trained by another loss than the actor's. The first layers of actor and critics are a trunk
(:class:`Trunk`), which maps many image features to a few.

Source: Yarats et al., 2022, for the trunk.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.records import Number
from thespis.core.spaces import Box
from thespis.nets.body import Encoder
from thespis.nets.mlp import MLP, Linear, orthogonal


class Trunk(eqx.Module):
    """Linear layer, layer normalisation (Ba et al., 2016) and ``tanh``."""

    linear: Linear
    norm: eqx.nn.LayerNorm

    def __init__(self, in_size: int, feature_size: int, key: Key[Array, ""]):
        self.linear, self.norm = Linear(in_size, feature_size, orthogonal(1.0), key), eqx.nn.LayerNorm(feature_size)

    def __call__(self, features: Float[Array, " in"]) -> Float[Array, " size"]:
        """Features in [-1, 1]."""
        return jnp.tanh(self.norm(self.linear(features)))


class TrunkMLP(eqx.Module):
    """A trunk, ReLU layers and a linear output; ``extra`` inputs are appended after the trunk."""

    trunk: Trunk
    mlp: MLP
    out: Linear

    def __init__(
        self,
        in_size: int,
        feature_size: int,
        extra_size: int,
        hidden_sizes: tuple[int, ...],
        out_size: int,
        key: Key[Array, ""],
    ):
        trunk_key, mlp_key, out_key = jax.random.split(key, 3)
        self.trunk = Trunk(in_size, feature_size, trunk_key)
        self.mlp = MLP(feature_size + extra_size, hidden_sizes, orthogonal(1.0), jax.nn.relu, mlp_key)
        self.out = Linear(hidden_sizes[-1], out_size, orthogonal(1.0), out_key)

    def __call__(
        self, features: Float[Array, " in"], extra: Float[Array, " extra"]
    ) -> tuple[Float[Array, " out"], Float[Array, ""]]:
        """The output, and the fraction of active ReLU units."""
        x, active = jnp.concatenate([self.trunk(features), extra]), []
        for layer in self.mlp.layers:
            x = self.mlp.activation(layer(x))
            active.append(x > 0)
        return self.out(x), jnp.mean(jnp.concatenate(active).astype("float32"))


class VisualActor(eqx.Module):
    """Visual encoder and actor network."""

    encoder: Encoder
    network: TrunkMLP
    space: Box = eqx.field(static=True)

    def __call__(self, observation: PyTree) -> Float[Array, "*action"]:
        """The action for one observation, in ``[-1, 1]``."""
        return self.action_from_features(self.encoder(observation))

    def action_from_features(self, features: Float[Array, " size"]) -> Float[Array, "*action"]:
        """The action for the features of one observation, in ``[-1, 1]``."""
        return jnp.tanh(self.network(features, jnp.zeros(0))[0]).reshape(self.space.shape)


def add_clipped_noise(
    action: Float[Array, "*action"], noise_std: Number, noise_clip: Number, key: Key[Array, ""]
) -> Float[Array, "*action"]:
    """``action`` plus normal noise clipped to ``noise_clip``, then clipped to [-1, 1] without effect on gradients."""
    noisy = action + jnp.clip(noise_std * jax.random.normal(key, action.shape), -noise_clip, noise_clip)
    return noisy + jax.lax.stop_gradient(jnp.clip(noisy, -1.0, 1.0) - noisy)


ActionNoise = Callable[[Array, Key[Array, ""]], Array]
"""Adds exploration noise to an action."""


def ensemble_q_values(
    critics: TrunkMLP, features: Float[Array, " size"], action: Float[Array, "*action"]
) -> tuple[Float[Array, " member"], Float[Array, ""]]:
    """Q-values of an action by every member of an ensemble, and the fraction of active units."""
    values, active = jax.vmap(lambda critic: critic(features, action.ravel()))(critics)
    return values[:, 0], jnp.mean(active)


def min_policy_values(
    critics: TrunkMLP,
    actor: VisualActor,
    features: Float[Array, "row size"],
    add_noise: ActionNoise,
    keys: Key[Array, " row"],
) -> Float[Array, " row"]:
    """Minimum over the ensemble of the Q-values of the actor's actions with noise."""
    return jax.vmap(
        lambda f, k: jnp.min(ensemble_q_values(critics, f, add_noise(actor.action_from_features(f), k))[0])
    )(features, keys)
