"""What critics on trunks say of an encoder's features."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from thespis.actors.looking import Looking
from thespis.nets.trunk import OnTrunk

Shake = Callable[[Array, Key[Array, ""]], Array]
"""Adds noise to an action."""


def valued(
    critics: OnTrunk, features: Float[Array, " size"], action: Float[Array, "*action"]
) -> tuple[Float[Array, " member"], Float[Array, ""]]:
    """The value of an action by every member of an ensemble, and which share of their units is active."""
    values, active = jax.vmap(lambda critic: critic(features, action.ravel()))(critics)
    return values[:, 0], jnp.mean(active)


def heights(
    critics: OnTrunk, actor: Looking, features: Float[Array, "row size"], shake: Shake, keys: Key[Array, " row"]
) -> Float[Array, " row"]:
    """Least values of the actor's shaken answers."""
    return jax.vmap(lambda f, k: jnp.min(valued(critics, f, shake(actor.answer(f), k))[0]))(features, keys)
