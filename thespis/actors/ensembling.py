"""Temporal ensembling: what is done is a mean of what was planned for now, by plans of several steps ago (Zhao et al.,
2023, arXiv:2304.13705).
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from thespis.objectives.values import Number


class Plans(eqx.Module):
    """The last plans, newest first, each of as many actions as there are plans; how many have been made."""

    actions: Float[Array, "*row plan step dimension"]
    made: Int[Array, "*row"]

    def after(self, plan: Float[Array, "step dimension"]) -> Plans:
        """With one more; the oldest is dropped."""
        kept = jnp.concatenate([plan[None], self.actions[:-1]])
        return Plans(kept, jnp.minimum(self.made + 1, plan.shape[0]))

    def now(self, gain: Number) -> Float[Array, " dimension"]:
        """The mean of what they say of the present step: each plan weighs ``exp(-gain)`` of the one before it."""
        age = jnp.arange(self.actions.shape[0])
        weight = jnp.where(age < self.made, jnp.exp(gain * age), 0.0)
        said = self.actions[age, age]
        return jnp.sum(weight[:, None] * said, axis=0) / jnp.sum(weight)


def no_plans(n: int, steps: int, dimensions: int) -> Plans:
    """Of ``n`` fresh episodes."""
    return Plans(jnp.zeros((n, steps, steps, dimensions)), jnp.zeros(n, "int32"))
