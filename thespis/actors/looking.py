"""A deterministic actor that looks through an encoder which is not its own to learn."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.spaces import Box
from thespis.nets.body import Encoder
from thespis.nets.trunk import OnTrunk
from thespis.objectives.values import Number


class Looking(eqx.Module):
    """Encoder and actor: what plays."""

    encoder: Encoder
    net: OnTrunk
    space: Box = eqx.field(static=True)

    def __call__(self, observation: PyTree) -> Float[Array, "*action"]:
        """The action for one observation, in ``[-1, 1]``."""
        return self.answer(self.encoder(observation))

    def answer(self, features: Float[Array, " size"]) -> Float[Array, "*action"]:
        """The action for the features of one observation, in ``[-1, 1]``."""
        return jnp.tanh(self.net(features, jnp.zeros(0))[0]).reshape(self.space.shape)


def shaken(
    action: Float[Array, "*action"], deviation: Number, largest: Number, key: Key[Array, ""]
) -> Float[Array, "*action"]:
    """``action`` with normal noise of no more than ``largest``, brought back into [-1, 1]; gradients pass as if it had
    not been.
    """
    moved = action + jnp.clip(deviation * jax.random.normal(key, action.shape), -largest, largest)
    return moved + jax.lax.stop_gradient(jnp.clip(moved, -1.0, 1.0) - moved)
