"""Point goal: a point in a square goes to a goal that is drawn anew in every episode, with a sparse reward.

Uniformly random play hardly ever comes to a goal, so that without hindsight there is nothing to learn from: the
smallest environment of the kind of Plappert et al., 2018, "Multi-goal reinforcement learning" (arXiv:1802.09464), with
their observations.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, dict_space
from thespis.envs.goals import SparseGoal

MAX_DISPLACEMENT = 0.1
"""Largest displacement in a step, in either direction; the square reaches from -1 to 1."""


class PointGoalState(eqx.Module):
    """State of one episode: position, goal, and number of steps taken."""

    position: Float[Array, "2"]
    goal: Float[Array, "2"]
    time: Int[Array, ""]


class PointGoal(eqx.Module):
    """Point-goal environment: a point in a square must go to a goal and stay there, with a sparse reward.

    Actions are displacements, in units of :data:`MAX_DISPLACEMENT`. Observations are dicts of the position as
    ``observation`` and ``achieved_goal``, and the ``desired_goal``. The reward is 1 for a step that ends within
    ``goal_radius`` of the goal, else 0; with ``terminates`` the episode ends there. Episodes start in the middle and
    are truncated after ``time_limit`` steps.
    """

    goal_radius: float = eqx.field(static=True, default=0.05)
    """Distance that counts as being at the goal."""
    terminates: bool = eqx.field(static=True, default=False)
    """Whether an episode ends at its goal."""
    time_limit: int = eqx.field(static=True, default=30)
    """Number of steps in an episode."""

    @property
    def rewards(self) -> SparseGoal:
        """Reward and termination as functions of goals."""
        return SparseGoal(self.goal_radius, terminates=self.terminates)

    @property
    def spec(self) -> EnvSpec:
        """Spaces and time limit."""
        square = Box((2,), -1.0, 1.0)
        observation = dict_space(observation=square, achieved_goal=square, desired_goal=square)
        return EnvSpec(
            "point-goal", observation, Box((2,), -1.0, 1.0), time_limit=self.time_limit, goal_relabeler=self.rewards
        )

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[PointGoalState, TimeStep]:
        """Starts in the middle, with a goal anywhere in the square."""
        goal = jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)
        state = PointGoalState(jnp.zeros(2), goal, jnp.zeros((), "int32"))
        false = jnp.zeros((), bool)
        return state, TimeStep(_observe(state), jnp.zeros(()), false, false)

    def step(
        self, state: PointGoalState, action: Float[Array, "2"], key: Key[Array, ""]
    ) -> tuple[PointGoalState, TimeStep]:
        """Moves by the clipped action, up to the edges of the square."""
        position = jnp.clip(state.position + MAX_DISPLACEMENT * jnp.clip(action, -1.0, 1.0), -1.0, 1.0)
        state = PointGoalState(position, state.goal, state.time + 1)
        reward = self.rewards.compute_reward(position, state.goal)
        terminated = self.rewards.compute_terminated(position, state.goal)
        truncated = (state.time >= self.time_limit) & ~terminated
        return state, TimeStep(_observe(state), reward, terminated, truncated)


def _observe(state: PointGoalState) -> dict[str, Array]:
    return {"observation": state.position, "achieved_goal": state.position, "desired_goal": state.goal}
