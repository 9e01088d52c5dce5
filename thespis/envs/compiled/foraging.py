"""Foraging environment: a point harvests food from four patches that regrow, a test of actions with several modes.

The best action is the patch with the most food, so it jumps from one patch to another, and every patch is a local
maximum of the action's value. A policy that stays in one mode gets a quarter of what grows.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box

PATCHES = ((0.6, 0.6), (-0.6, 0.6), (-0.6, -0.6), (0.6, -0.6))
"""Positions of the patches in the square of actions."""

Food = Float[Array, "4"]


class ForagingState(eqx.Module):
    """State of one episode: food of each patch, in [0, 1], and number of steps taken."""

    food: Food
    time: Int[Array, ""]


class ForagingEnv(eqx.Module):
    """Foraging environment: a point in a square harvests from four patches that regrow.

    The observation is the food of every patch, in [0, 1] and uniform at the start. An action is a position in the
    square: every patch yields the share ``exp(-d² / (2 patch_radius²))`` of its food, where ``d`` is the distance of
    the action. The reward is the sum of what was harvested. After each step every patch regrows by ``growth``, up to 1.
    Episodes are truncated after ``time_limit`` steps.
    """

    patch_radius: float = eqx.field(static=True, default=0.2)
    growth: float = eqx.field(static=True, default=0.2)
    is_aimed: bool = eqx.field(static=True, default=False)
    """Whether actions are relative to the patch with the most food: then the best action is always the same."""
    time_limit: int = eqx.field(static=True, default=50)

    @property
    def spec(self) -> EnvSpec:
        """Spaces and time limit."""
        return EnvSpec("foraging", Box((4,), 0.0, 1.0), Box((2,), -1.0, 1.0), time_limit=self.time_limit)

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[ForagingState, TimeStep]:
        """Start with food drawn uniformly."""
        food, false = jax.random.uniform(key, (4,)), jnp.zeros((), bool)
        return ForagingState(food, jnp.zeros((), "int32")), TimeStep(food, jnp.zeros(()), false, false)

    def step(
        self, state: ForagingState, action: Float[Array, "2"], key: Key[Array, ""]
    ) -> tuple[ForagingState, TimeStep]:
        """Harvest at the clipped action, then regrow."""
        harvest, time = self.harvest(state.food, action), state.time + 1
        food = jnp.minimum(state.food - harvest + self.growth, 1.0)
        reward, false = jnp.sum(harvest), jnp.zeros((), bool)
        return ForagingState(food, time), TimeStep(food, reward, false, time >= self.time_limit)

    def harvest(self, food: Food, action: Float[Array, "2"]) -> Food:
        """What the action harvests from each patch."""
        position, patches = jnp.clip(action, -1.0, 1.0), jnp.array(PATCHES)
        if self.is_aimed:
            position = position + patches[jnp.argmax(food)]
        squared_distances = jnp.sum((patches - position) ** 2, axis=1)
        return food * jnp.exp(-squared_distances / (2 * self.patch_radius**2))
