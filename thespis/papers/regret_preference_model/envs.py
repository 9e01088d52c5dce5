"""Delivery grids: random grids with a goal, hazards and ground of different cost, whose optimal values are exact.

Every cell has a kind, and a step into it earns the reward of that kind; a step against a wall or a blocked cell stays
and earns that of the ground. Goals and hazards end the episode. Episodes begin in any other cell.

Source: the delivery domain of Knox et al., 2022 (arXiv:2206.02231), with the rewards of their code: -1 a step, 50 for
the goal, -50 for a sheep, another -1 for a road block, and -2 on mud. Differs: there are no coins, which could be
earned again and again, and mud is no area that one cannot leave.
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
from thespis.runtime.keys import fold

GROUND, GOAL, HAZARD, OBSTACLE, MUD, BLOCKED = range(6)
"""Kinds of cells; only a blocked one cannot be entered."""
NUM_FEATURES = 5
"""Features of a step: the kind of the cell that it ends in; an obstacle lies on ground."""
REWARDS = (-1.0, 50.0, -50.0, -1.0, -2.0)
"""Reward of each feature."""
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""Up, down, left, right."""


class GridTables(eqx.Module):
    """Dynamics of a grid as tables, and the features of its rewards."""

    next_state: Int[Array, "state action"]
    features: Float[Array, "state action feature"]
    rewards: Float[Array, "state action"]
    """The true rewards, which teachers and measures alone may read."""
    is_terminal: Bool[Array, " state"]
    """Cells that end an episode: goals and hazards."""
    is_start: Bool[Array, " state"]
    """Where episodes begin: all other cells that are not blocked."""


@functools.cache
def draw_cells(size: int, seed: int, num_cells: tuple[int, ...]) -> np.ndarray:
    """Kinds ``[row, column]`` of a random grid; ``num_cells``: how many there are of each kind but ground."""
    cells = np.zeros(size * size, "int32")
    kinds = np.repeat(np.arange(1, len(num_cells) + 1), num_cells)
    cells[np.random.default_rng(seed).permutation(size * size)[: len(kinds)]] = kinds
    return cells.reshape(size, size)


@functools.cache
def grid_arrays(size: int, seed: int, num_cells: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """The arrays of :class:`GridTables`, in its order."""
    cells = draw_cells(size, seed, num_cells)
    kind_features = np.eye(NUM_FEATURES, dtype="float32")[[GROUND, GOAL, HAZARD, OBSTACLE, MUD, GROUND]]
    kind_features[OBSTACLE, GROUND] = 1.0
    next_state = np.zeros((size * size, len(MOVES)), "int32")
    features = np.zeros((size * size, len(MOVES), NUM_FEATURES), "float32")
    for state in range(size * size):
        for action, move in enumerate(MOVES):
            row, column = np.array(divmod(state, size)) + move
            is_free = 0 <= row < size and 0 <= column < size and cells[row, column] != BLOCKED
            next_state[state, action] = row * size + column if is_free else state
            own = MUD if cells.flat[state] == MUD else GROUND
            features[state, action] = kind_features[cells[row, column] if is_free else own]
    is_terminal = np.isin(cells.ravel(), (GOAL, HAZARD))
    rewards = features @ np.array(REWARDS, "float32")
    return next_state, features, rewards, is_terminal, ~is_terminal & (cells.ravel() != BLOCKED)


class DeliveryState(eqx.Module):
    """State of one episode: the cell, and the number of steps taken."""

    cell: Int[Array, ""]
    time: Int[Array, ""]


class DeliveryGrid(eqx.Module):
    """Delivery grid: reach the goal over ground of different cost, and no hazard.

    ``size``: cells a side. ``seed``: that of the grid. ``num_cells``: the numbers of goals, hazards, obstacles, cells
    of mud and blocked cells. ``time_limit``: steps after which an episode is truncated. The observation is the
    cell, one-hot.
    """

    size: int = eqx.field(static=True, default=6)
    seed: int = eqx.field(static=True, default=0)
    num_cells: tuple[int, ...] = eqx.field(static=True, default=(1, 2, 3, 6, 4))
    time_limit: int = eqx.field(static=True, default=50)

    @property
    def tables(self) -> GridTables:
        """The dynamics, and the features of rewards."""
        return GridTables(*map(jnp.asarray, grid_arrays(self.size, self.seed, self.num_cells)))

    @property
    def spec(self) -> EnvSpec:
        """Spaces and time limit; the parameters of an episode are the tables, which methods may plan with."""
        observation_space = Box((self.size**2,), 0.0, 1.0)
        return EnvSpec(
            "delivery-grid", observation_space, Discrete(len(MOVES)), time_limit=self.time_limit, params=self.tables
        )

    def reset(self, params: GridTables, key: Key[Array, ""]) -> tuple[DeliveryState, TimeStep]:
        """Starts in any cell that ends no episode."""
        cell = jax.random.categorical(fold(key, "start"), jnp.where(params.is_start, 0.0, -jnp.inf)).astype("int32")
        state = DeliveryState(cell, jnp.zeros((), "int32"))
        return state, self._time_step(state, jnp.zeros(()), jnp.zeros((), bool))

    def step(self, state: DeliveryState, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[DeliveryState, TimeStep]:
        """Moves, if it can."""
        tables = self.tables
        after = DeliveryState(tables.next_state[state.cell, action], state.time + 1)
        return after, self._time_step(after, tables.rewards[state.cell, action], tables.is_terminal[after.cell])

    def _time_step(self, state: DeliveryState, reward: Float[Array, ""], terminated: Bool[Array, ""]) -> TimeStep:
        observation = jax.nn.one_hot(state.cell, self.size**2)
        return TimeStep(observation, reward, terminated, (state.time >= self.time_limit) & ~terminated)
