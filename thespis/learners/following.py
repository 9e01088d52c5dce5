"""What the choice after each step of a rollout is worth: that of the best one, or of the one that was taken."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.core.records import Transition
from thespis.learners.choices import masked


class QLearning(eqx.Module):
    """The best legal choice (Watkins, 1989), whatever was done next."""

    def value(self, values: Float[Array, "time row n"], steps: Transition) -> Float[Array, "time row"]:
        """Worth of each step's true next observation; ``values`` are those of every choice there."""
        return jnp.max(masked(values, steps.next_view.legal), axis=-1)


class Sarsa(eqx.Module):
    """The choice that was taken next (Rummery and Niranjan, 1994).

    Where none was, at the rollout's last step and at a truncation: the mean over what the actor would have done
    with its present chance of a random choice (van Seijen et al., 2009), which is stored as ``epsilon``.
    """

    def value(self, values: Float[Array, "time row n"], steps: Transition) -> Float[Array, "time row"]:
        """Worth of each step's true next observation; ``values`` are those of every choice there."""
        choice = jnp.roll(steps.action, -1, axis=0)
        taken = jnp.take_along_axis(values, choice[..., None], axis=-1)[..., 0]
        known = ~steps.ended & (jnp.arange(values.shape[0]) < values.shape[0] - 1)[:, None]
        return jnp.where(known, taken, self._expected(values, steps))

    def _expected(self, values: Array, steps: Transition) -> Array:
        legal, epsilon = steps.next_view.legal, steps.extras["epsilon"]
        best = jnp.max(masked(values, legal), axis=-1)
        return (1 - epsilon) * best + epsilon * jnp.mean(values, axis=-1, where=legal)


Following = QLearning | Sarsa
