"""Rewards of goal-conditioned environments, as pure functions of the achieved and the desired goal.

Such an environment has dict observations with ``observation``, ``achieved_goal`` and ``desired_goal``, Gymnasium's
convention, and one of these as its ``goal_relabeler``: a compiled environment in its spec, a Gymnasium environment as
an attribute of that name. Hindsight replay needs it to say what a step would have paid with another goal. Each is a
:class:`~thespis.core.contracts.GoalRewards`; their functions are traced by JAX.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree


@dataclasses.dataclass(frozen=True)
class SparseGoal:
    """Sparse reward: one number within a distance of the goal, another one elsewhere."""

    radius: float
    """Largest Euclidean distance from the goal that counts as being there."""
    goal_reward: float = 1.0
    """Reward of a step that ends at the goal."""
    step_reward: float = 0.0
    """Reward of any other step."""
    terminates: bool = False
    """Whether the episode ends at the goal; else it goes on."""

    def compute_reward(self, achieved_goal: Float[Array, " n"], desired_goal: Float[Array, " n"]) -> Float[Array, ""]:
        """The reward of a step that achieved one goal while another was desired."""
        return jnp.where(self._is_success(achieved_goal, desired_goal), self.goal_reward, self.step_reward)

    def compute_terminated(
        self, achieved_goal: Float[Array, " n"], desired_goal: Float[Array, " n"]
    ) -> Bool[Array, ""]:
        """Whether the episode ends with that step."""
        return self._is_success(achieved_goal, desired_goal) & self.terminates

    def _is_success(self, achieved_goal: Array, desired_goal: Array) -> Array:
        return jnp.sum((achieved_goal - desired_goal) ** 2) <= self.radius**2


@dataclasses.dataclass(frozen=True)
class GoalReward:
    """A reward function of one's own of the achieved and the desired goal, and a condition that ends the episode."""

    reward: Callable[[PyTree, PyTree], Float[Array, ""]]
    """Reward of a step from ``(achieved_goal, desired_goal)``, in JAX."""
    terminated: Callable[[PyTree, PyTree], Bool[Array, ""]] | None = None
    """Whether the episode ends there; ``None``: never because of the goal."""

    def compute_reward(self, achieved_goal: PyTree, desired_goal: PyTree) -> Float[Array, ""]:
        """The reward of a step that achieved one goal while another was desired."""
        return jnp.asarray(self.reward(achieved_goal, desired_goal), "float32")

    def compute_terminated(self, achieved_goal: PyTree, desired_goal: PyTree) -> Bool[Array, ""]:
        """Whether the episode ends with that step."""
        if self.terminated is None:
            return jnp.zeros((), bool)
        return jnp.asarray(self.terminated(achieved_goal, desired_goal), bool)
