"""Sticky-actions wrapper: with some probability the previous action is repeated in place of the agent's.

Source: Machado et al., 2018, "Revisiting the Arcade Learning Environment: evaluation protocols and open problems for
general agents", who advise a probability of 0.25. What is repeated is the action that was executed, so that repetitions
can follow each other. The first action of an episode is always executed. Observations do not show what was executed.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key, PyTree

from thespis.core.contracts import Environment
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import zero_value
from thespis.runtime.keys import fold


class StickyActionsState(eqx.Module):
    """State of one episode: the environment's own state, and the action executed last."""

    env_state: Any
    last_action: PyTree
    is_first: Bool[Array, ""]
    """Whether no action has been executed yet."""


class StickyActions(eqx.Module):
    """Sticky-actions wrapper: ``env``, in which every step repeats the last executed action with ``probability``."""

    env: Environment
    probability: float = eqx.field(static=True, default=0.25)
    """Probability of each step but the first to repeat the action executed before it, in [0, 1)."""

    def __check_init__(self):
        """Raise :class:`UserError` for a probability outside of [0, 1), or where an action may become illegal."""
        if not 0 <= self.probability < 1:
            raise UserError(f"the probability of sticky actions must be at least 0 and below 1, not {self.probability}")
        if self.env.spec.has_action_mask:
            raise UserError("sticky actions need an environment in which every action is always legal")

    @property
    def spec(self) -> EnvSpec:
        """The environment's spec, which does not change."""
        return self.env.spec

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[StickyActionsState, TimeStep]:
        """Start an episode of the wrapped environment."""
        env_state, first = self.env.reset(params, key)
        action = jax.tree.map(jnp.asarray, zero_value(self.env.spec.action_space))
        return StickyActionsState(env_state, action, jnp.ones((), bool)), first

    def step(
        self, state: StickyActionsState, action: PyTree, key: Key[Array, ""]
    ) -> tuple[StickyActionsState, TimeStep]:
        """One step of the environment, with the last action or with the agent's."""
        sticks = ~state.is_first & (jax.random.uniform(fold(key, "sticky")) < self.probability)
        executed = jax.tree.map(
            lambda last, chosen: jnp.where(sticks, last, jnp.asarray(chosen, last.dtype)), state.last_action, action
        )
        env_state, step = self.env.step(state.env_state, executed, fold(key, "step"))
        return StickyActionsState(env_state, executed, jnp.zeros((), bool)), step
