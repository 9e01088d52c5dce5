"""Multi-goal environment: a point in a plane with four equally good goals, a test of multimodal policies.

A maximum-entropy policy must go to all of them equally often, and choose in the middle, where the four are equally good
and nothing is gained by staying between them.

Source: the multi-goal environment of soft Q-learning (Haarnoja et al. 2017, arXiv:1702.08165), with the numbers of its
authors' code, which truncates episodes after 30 steps. Their later code has about a tenth of the reward:
``goal_reward=1, action_cost=1, distance_cost=0.1``.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box

GOALS = ((5.0, 0.0), (-5.0, 0.0), (0.0, 5.0), (0.0, -5.0))
"""Positions of the goals: east, west, north, south."""
GOAL_RADIUS = 1.0
"""The episode terminates within this distance of a goal."""
ARENA_HALF_SIZE = 7.0
"""Distance from the middle to each of the plane's four edges."""

Point2D = Float[Array, "2"]


class MultiGoalState(eqx.Module):
    """State of one episode: position, and number of steps taken."""

    position: Point2D
    time: Int[Array, ""]


class MultiGoal(eqx.Module):
    """Multi-goal environment: a point in a plane with four equally good goals.

    Actions are displacements of up to 1 in either direction; the observation is the position, clipped at the edges. The
    reward of a step is ``-action_cost |step|² - distance_cost d²``, where ``d`` is the distance from the new position
    to the nearest goal. Within :data:`GOAL_RADIUS` of a goal the episode terminates, and ``goal_reward`` is added.
    Episodes start in the middle, with standard deviation ``initial_std`` in either direction, and are truncated after
    ``time_limit`` steps.
    """

    goal_reward: float = eqx.field(static=True, default=10.0)
    action_cost: float = eqx.field(static=True, default=30.0)
    distance_cost: float = eqx.field(static=True, default=1.0)
    initial_std: float = eqx.field(static=True, default=0.1)
    time_limit: int = eqx.field(static=True, default=30)

    @property
    def spec(self) -> EnvSpec:
        """Spaces and time limit."""
        return EnvSpec(
            "multi-goal", Box((2,), -ARENA_HALF_SIZE, ARENA_HALF_SIZE), Box((2,), -1.0, 1.0), time_limit=self.time_limit
        )

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[MultiGoalState, TimeStep]:
        """Starts near the middle."""
        position = jnp.clip(self.initial_std * jax.random.normal(key, (2,)), -ARENA_HALF_SIZE, ARENA_HALF_SIZE)
        false = jnp.zeros((), bool)
        return MultiGoalState(position, jnp.zeros((), "int32")), TimeStep(position, jnp.zeros(()), false, false)

    def step(
        self, state: MultiGoalState, action: Float[Array, "2"], key: Key[Array, ""]
    ) -> tuple[MultiGoalState, TimeStep]:
        """Moves by the clipped action."""
        displacement = jnp.clip(action, -1.0, 1.0)
        position, time = jnp.clip(state.position + displacement, -ARENA_HALF_SIZE, ARENA_HALF_SIZE), state.time + 1
        squared_distance = jnp.min(squared_goal_distances(position))
        reached = squared_distance < GOAL_RADIUS**2
        reward = (
            self.goal_reward * reached
            - self.action_cost * jnp.sum(displacement**2)
            - self.distance_cost * squared_distance
        )
        return MultiGoalState(position, time), TimeStep(position, reward, reached, (time >= self.time_limit) & ~reached)


LONG_MULTI_GOAL = MultiGoal(time_limit=1_000)
"""A random walk reaches a goal within the time limit: exploration finds them all."""


def squared_goal_distances(position: Float[Array, "*axes 2"]) -> Float[Array, "*axes 4"]:
    """Squared distances from ``position`` to each of :data:`GOALS`."""
    return jnp.sum((position[..., None, :] - jnp.array(GOALS)) ** 2, axis=-1)
