"""Path grid: a goal in the corner of a small grid, and bad cells on the straight way to it.

Episodes begin in the corner at the lower left and end at the goal, in the corner at the lower right. All cells of the
lowest row between the two are bad. The shortest way with the largest return goes around them.

Source: the grid of MacGlashan et al., 2017 (arXiv:1701.06049): 8 by 5 cells, 5 for the goal, -1 for a bad cell.
"""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete

WIDTH, HEIGHT = 8, 5
NUM_CELLS = WIDTH * HEIGHT
START, GOAL = 0, WIDTH - 1
"""Cells are numbered row by row, from the lower left."""
GOAL_REWARD, BAD_REWARD = 5.0, -1.0
MOVES = ((0, 1), (0, -1), (-1, 0), (1, 0))
"""Up, down, left, right."""


class PathTables(eqx.Module):
    """Dynamics and rewards of the grid as tables, which trainers and measures plan with."""

    next_state: Int[Array, "state action"]
    rewards: Float[Array, "state action"]
    is_terminal: Bool[Array, " state"]


@functools.cache
def path_arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The arrays of :class:`PathTables`, in its order; a move against a wall stays."""
    next_state = np.zeros((NUM_CELLS, len(MOVES)), "int32")
    for cell in range(NUM_CELLS):
        y, x = divmod(cell, WIDTH)
        for action, (right, up) in enumerate(MOVES):
            next_state[cell, action] = np.clip(y + up, 0, HEIGHT - 1) * WIDTH + np.clip(x + right, 0, WIDTH - 1)
    cell_rewards = np.zeros(NUM_CELLS, "float32")
    cell_rewards[START + 1 : GOAL] = BAD_REWARD
    cell_rewards[GOAL] = GOAL_REWARD
    return next_state, cell_rewards[next_state], np.arange(NUM_CELLS) == GOAL


class PathState(eqx.Module):
    """State of one episode: the cell, and the number of steps taken."""

    cell: Int[Array, ""]
    time: Int[Array, ""]


class PathGrid(eqx.Module):
    """Grid of 8 by 5 cells with a goal and bad cells on the straight way: the observation is the cell, one-hot.

    ``time_limit``: steps after which an episode is truncated.
    """

    time_limit: int = eqx.field(static=True, default=100)

    @property
    def tables(self) -> PathTables:
        """The dynamics and rewards."""
        return PathTables(*map(jnp.asarray, path_arrays()))

    @property
    def spec(self) -> EnvSpec:
        """Spaces and time limit; the parameters of an episode are the tables, which simulated trainers plan with."""
        observation_space = Box((NUM_CELLS,), 0.0, 1.0)
        return EnvSpec(
            "path-grid", observation_space, Discrete(len(MOVES)), time_limit=self.time_limit, params=self.tables
        )

    def reset(self, params: PathTables, key: Key[Array, ""]) -> tuple[PathState, TimeStep]:
        """Starts in the lower left corner."""
        state = PathState(jnp.asarray(START, "int32"), jnp.zeros((), "int32"))
        return state, self._time_step(state, jnp.zeros(()), jnp.zeros((), bool))

    def step(self, state: PathState, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[PathState, TimeStep]:
        """Moves, if there is no wall."""
        tables = self.tables
        after = PathState(tables.next_state[state.cell, action], state.time + 1)
        return after, self._time_step(after, tables.rewards[state.cell, action], tables.is_terminal[after.cell])

    def _time_step(self, state: PathState, reward: Float[Array, ""], terminated: Bool[Array, ""]) -> TimeStep:
        observation = jax.nn.one_hot(state.cell, NUM_CELLS)
        return TimeStep(observation, reward, terminated, (state.time >= self.time_limit) & ~terminated)
