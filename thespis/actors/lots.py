"""Lots that are drawn once an episode."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from thespis.core.keys import per_index


class Lot(eqx.Module):
    """Whether an episode has begun, and whether its lot was taken; as part of an actor's memory, leaves ``[row]``."""

    begun: Bool[Array, "*row"]
    taken: Bool[Array, "*row"]

    @classmethod
    def of(cls, n: int) -> Lot:
        """Of ``n`` episodes that have not begun."""
        return cls(jnp.zeros(n, bool), jnp.zeros(n, bool))

    def drawn(self, chance: Float[Array, ""], key: Key[Array, ""]) -> Lot:
        """With the lots of episodes that begin now: each is taken with ``chance``."""
        lots = jax.vmap(jax.random.uniform)(per_index(key, self.begun.shape[0]))
        return Lot(jnp.ones_like(self.begun), jnp.where(self.begun, self.taken, lots < chance))
