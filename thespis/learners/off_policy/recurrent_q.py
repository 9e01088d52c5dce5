"""Recurrent Q-learning from replayed sequences: Q-values along a sequence, their targets, and priorities."""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from thespis.core.records import Number, Transition
from thespis.critics.recurrent_q import RecurrentQ
from thespis.learners.off_policy.discrete_q import mask_illegal
from thespis.nets.body import unroll
from thespis.objectives.value_rescaling import rescale_value, unscale_value


class RecurrentQState(eqx.Module):
    """State of recurrent Q-learning."""

    critic: RecurrentQ
    target_critic: RecurrentQ
    opt_state: PyTree
    num_updates: Int[Array, ""]


class ValueTransform(eqx.Module):
    """Slot: the scale on which Q-values are learned."""

    @abc.abstractmethod
    def rescale(self, value: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
        """The value on this scale."""

    @abc.abstractmethod
    def unscale(self, rescaled: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
        """The value of a rescaled one."""


class ValueRescaling(ValueTransform):
    """Value rescaling (Pohlen et al., 2018): Q-values on a scale on which large returns are compressed."""

    epsilon: Number = 1e-3
    """Slope of the linear part."""

    def rescale(self, value: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
        """The rescaled value."""
        return rescale_value(value, self.epsilon)

    def unscale(self, rescaled: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
        """The value of a rescaled one."""
        return unscale_value(rescaled, self.epsilon)


class _NoRescaling(eqx.Module):
    """Values are learned as they are."""

    def rescale(self, value: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
        """The value itself."""
        return value

    def unscale(self, rescaled: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
        """The value itself."""
        return rescaled


NO_RESCALING = _NoRescaling()
"""What ``value_rescaling=None`` does."""


def sequence_q_values(
    critic: RecurrentQ, memory: Any, steps: Transition, burn_in: int
) -> tuple[Float[Array, "time row n"], Float[Array, "time row n"]]:
    """Q-values of all actions at each step after the first ``burn_in``, and at each of their true next observations.

    ``memory`` is that before the first step; gradients do not reach into the burn-in. Those of illegal actions are far
    below any other.
    """
    observation, is_first = steps.view.observation, steps.is_first
    if burn_in:
        before = jax.tree.map(lambda x: x[:burn_in], (observation, is_first))
        _, memories = unroll(critic, memory, *before)
        memory = jax.tree.map(lambda x: jax.lax.stop_gradient(x[-1]), memories)
    learned = jax.tree.map(lambda x: x[burn_in:], steps)
    values, memories = unroll(critic, memory, learned.view.observation, learned.is_first)
    next_values, _ = jax.vmap(jax.vmap(critic))(memories, learned.next_view.observation)
    return mask_illegal(values, learned.view.action_mask), mask_illegal(next_values, learned.next_view.action_mask)


def sequence_priorities(errors: Float[Array, "time row"], max_weight: Number) -> Float[Array, " row"]:
    """Priorities of sequences: ``max_weight`` times the largest absolute TD error, plus the rest times the mean one."""
    size = jnp.abs(errors)
    return max_weight * jnp.max(size, axis=0) + (1.0 - max_weight) * jnp.mean(size, axis=0)
