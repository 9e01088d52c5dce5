"""Maze: an agent with a partial view looks for the goal; the benchmark of unsupervised environment design.

Source: the mazes of PAIRED (Dennis et al. 2020, arXiv:2012.02096), robust PLR (Jiang et al. 2021, arXiv:2110.02439) and
ACCEL (Parker-Holder et al. 2022, arXiv:2203.01302), with the rules of their JAX versions minimax and jaxued.

Differs from jaxued: three actions (there seven, of which four do nothing: ``num_actions=7``); the view is one-hot,
rows first (there numbers of an object's type, colour and state, columns first); an episode that ends at the time limit
is truncated, not terminated.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, UInt8

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete, dict_space
from thespis.envs.compiled.maze_drawing import draw_maze
from thespis.envs.compiled.maze_levels import DIRECTIONS, MazeLevel, MazeLevels, load_level

LEFT, RIGHT, FORWARD = 0, 1, 2
"""Actions: turn left, turn right, move forward."""
TIME_PENALTY = 0.9
"""Share of the reward that is lost when the goal is reached at the time limit."""


class MazeState(eqx.Module):
    """State of one episode: the level, the agent's position ``(row, column)`` and direction, and the steps taken."""

    level: MazeLevel
    position: Int[Array, "2"]
    direction: Int[Array, ""]
    time: Int[Array, ""]


class Maze(eqx.Module):
    """Maze environment: turn left, turn right or move forward until the goal is reached.

    A move into a wall or out of the grid does nothing. The observation is the agent's ``direction`` and an ``image`` of
    the ``view_size`` by ``view_size`` cells in front of it, seen through walls, as one-hot channels (free, wall, goal):
    the farthest row is first, and the agent stands in the middle of the last. Outside of the grid are walls.

    The episode terminates when the agent moves to the goal, with the reward ``1 - 0.9 t / time_limit`` at step ``t``;
    other rewards are 0. ``spec.params`` is a :class:`MazeLevel`, so that a curriculum can draw the level of every
    episode; ``levels`` makes such levels.
    """

    level: str = eqx.field(static=True, default="Empty")
    """Level where no curriculum draws one: a name in :data:`MAZES`, or rows separated by slashes (``>.#/..G``)."""
    num_walls: int | None = eqx.field(static=True, default=None)
    """Largest number of walls of random levels; ``None``: 60 in the usual 169 cells, and as dense in other mazes."""
    vary_num_walls: bool = eqx.field(static=True, default=True)
    """Whether random levels have uniformly 0 to ``num_walls`` walls, and not always ``num_walls``."""
    view_size: int = eqx.field(static=True, default=5)
    """Rows and columns of the view: an odd number from 3."""
    time_limit: int = eqx.field(static=True, default=250)
    """Number of steps after which an episode is truncated."""
    num_actions: int = eqx.field(static=True, default=3)
    """Number of actions; those after the first three do nothing."""

    def __check_init__(self):
        """Reject settings out of range, and a level that does not exist."""
        if self.view_size < 3 or self.view_size % 2 == 0:
            raise UserError(f"view_size is {self.view_size}: give an odd number of at least 3")
        if self.num_actions < FORWARD + 1 or self.time_limit < 1:
            raise UserError("a maze needs num_actions of at least 3 and time_limit of at least 1")
        _ = self.levels  # which checks the level and the number of walls

    @property
    def levels(self) -> MazeLevels:
        """Random levels of the size of ``level``, their edits and codes."""
        height, width = load_level(self.level).walls.shape
        usual = MazeLevels()
        dense = usual.num_walls * height * width // math.prod(usual.shape)
        return MazeLevels((height, width), dense if self.num_walls is None else self.num_walls, self.vary_num_walls)

    @property
    def spec(self) -> EnvSpec:
        """Spaces, time limit and level."""
        image = Box((self.view_size, self.view_size, 3), 0.0, 1.0)
        return EnvSpec(
            "maze",
            dict_space(direction=Discrete(len(DIRECTIONS)), image=image),
            Discrete(self.num_actions),
            time_limit=self.time_limit,
            params=load_level(self.level),
            levels=self.levels,
            return_bounds=(0.0, 1.0),
        )

    def reset(self, params: MazeLevel, key: Key[Array, ""]) -> tuple[MazeState, TimeStep]:
        """Starts where the level says."""
        state = MazeState(params, params.agent, params.direction, jnp.zeros((), "int32"))
        false = jnp.zeros((), bool)
        return state, TimeStep(self._observe(state), jnp.zeros(()), false, false)

    def step(self, state: MazeState, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[MazeState, TimeStep]:
        """Turns or moves the agent."""
        walls, time = state.level.walls, state.time + 1
        turn = (action == RIGHT).astype("int32") - (action == LEFT)
        move = (action == FORWARD) * _forward(state.direction)
        ahead = jnp.clip(state.position + move, 0, jnp.array(walls.shape) - 1)
        reached = jnp.all(ahead == state.level.goal)
        blocked = walls[ahead[0], ahead[1]] | reached  # the agent stops before the goal, as in the source
        position = jnp.where(blocked, state.position, ahead)
        state = MazeState(state.level, position, (state.direction + turn) % len(DIRECTIONS), time)
        reward = jnp.where(reached, 1.0 - TIME_PENALTY * (time / self.time_limit), 0.0)
        return state, TimeStep(self._observe(state), reward, reached, (time >= self.time_limit) & ~reached)

    @property
    def render_fps(self) -> float:
        """Steps per second of a video."""
        return 8.0

    def render(self, state: MazeState) -> UInt8[Array, "height width 3"]:
        """A picture of the state, see :func:`draw_maze`."""
        return draw_maze(state.level, state.position, state.direction, self._sees(state))

    def _sees(self, state: MazeState) -> Bool[Array, "height_with_walls width_with_walls"]:
        """Which cells are in the view; the outer walls are the first and last rows and columns."""
        height, width = state.level.walls.shape
        cells = jnp.stack(jnp.meshgrid(jnp.arange(-1, height + 1), jnp.arange(-1, width + 1), indexing="ij"), axis=-1)
        forward = _forward(state.direction)
        distance = (cells - state.position) @ forward
        offset = (cells - state.position) @ _right(forward)
        return (distance >= 0) & (distance < self.view_size) & (jnp.abs(offset) <= self.view_size // 2)

    def _observe(self, state: MazeState) -> dict[str, Array]:
        return {"direction": state.direction, "image": self._view(state)}

    def _view(self, state: MazeState) -> Float[Array, "view_size view_size 3"]:
        walls, size = state.level.walls, self.view_size
        forward = _forward(state.direction)
        distance = jnp.arange(size - 1, -1, -1)[:, None, None]
        offset = (jnp.arange(size) - size // 2)[None, :, None]
        cells = state.position + distance * forward + offset * _right(forward)
        outside = jnp.any((cells < 0) | (cells >= jnp.array(walls.shape)), axis=-1)
        inside = jnp.clip(cells, 0, jnp.array(walls.shape) - 1)
        wall = outside | walls[inside[..., 0], inside[..., 1]]
        goal = jnp.all(cells == state.level.goal, axis=-1)
        return jnp.stack([~(wall | goal), wall & ~goal, goal], axis=-1).astype("float32")


def _forward(direction: Int[Array, ""]) -> Int[Array, "2"]:
    """The move ``(row, column)`` in a direction: ``DIRECTIONS[direction]``, by arithmetic."""
    row = (direction == 1).astype("int32") - (direction == 3)
    column = (direction == 0).astype("int32") - (direction == 2)
    return jnp.stack([row, column])


def _right(forward: Int[Array, "2"]) -> Int[Array, "2"]:
    """The move to the right of one who faces ``forward``."""
    return jnp.stack([forward[1], -forward[0]])
