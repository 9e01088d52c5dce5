"""Rewards as functions of goals for Gymnasium environments: their own attribute, or those that are known here."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from thespis.core.contracts import GoalRewards
from thespis.core.errors import UserError
from thespis.envs.goals import SparseGoal
from thespis.envs.host.snapshot import wrapper_chain

POINT_MAZE_RADIUS = 0.45
"""Distance that counts as being at the goal in PointMaze of gymnasium-robotics (its ``compute_reward``)."""


@runtime_checkable
class HasGoalRelabeler(Protocol):
    """Interface of an environment, or a wrapper, that says its rewards as a function of goals."""

    goal_relabeler: Any


@runtime_checkable
class PointMazeSettings(Protocol):
    """Attributes of gymnasium-robotics' PointMaze that decide on rewards and terminations."""

    reward_type: str
    continuing_task: bool


def find_goal_rewards(env: Any, name: str) -> GoalRewards | None:
    """The rewards of an environment as a function of goals; ``None`` if they are not known.

    An environment, or a wrapper around it, says them by an attribute ``goal_relabeler``. Known are those of PointMaze
    with sparse rewards. A ``compute_reward`` in NumPy, as Gymnasium's goal environments have, cannot be traced by JAX.

    Raises:
        UserError: for an attribute that lacks the functions.
    """
    layers = wrapper_chain(env)
    holder = next((x for x in layers if isinstance(x, HasGoalRelabeler) and x.goal_relabeler is not None), None)
    if holder is not None:
        if not isinstance(holder.goal_relabeler, GoalRewards):
            raise UserError(
                f"goal_relabeler of {name} needs the functions compute_reward and compute_terminated of "
                "(achieved_goal, desired_goal), as thespis.envs.goals.SparseGoal has them"
            )
        return holder.goal_relabeler
    inner = layers[-1]
    is_maze = type(inner).__module__.startswith("gymnasium_robotics.envs.maze.point_maze")
    if is_maze and isinstance(inner, PointMazeSettings) and inner.reward_type == "sparse":
        return SparseGoal(POINT_MAZE_RADIUS, terminates=not inner.continuing_task)
    return None
