"""Bernoulli samples that are drawn once per episode."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from thespis.runtime.keys import indexed_keys


class EpisodeBernoulli(eqx.Module):
    """Bernoulli sample of an episode, and whether the episode has started.

    It is part of an actor's memory, leaves ``[row]``.
    """

    started: Bool[Array, "*row"]
    selected: Bool[Array, "*row"]

    @classmethod
    def init(cls, n: int) -> EpisodeBernoulli:
        """The state of ``n`` episodes that have not started."""
        return cls(jnp.zeros(n, bool), jnp.zeros(n, bool))

    def sample(self, prob: Float[Array, ""], key: Key[Array, ""]) -> EpisodeBernoulli:
        """Sample for episodes that start now: ``selected`` with probability ``prob``."""
        uniform = jax.vmap(jax.random.uniform)(indexed_keys(key, self.started.shape[0]))
        return EpisodeBernoulli(jnp.ones_like(self.started), jnp.where(self.started, self.selected, uniform < prob))
