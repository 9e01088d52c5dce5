"""Maze of users with different goals: an episode serves one user, known by a few comparisons of cells.

Each user has one of the maze's goals, and a cell's utility to them falls linearly with its distance from that goal. The
observation has the cell, and comparisons of random cells, of which the user prefers the first with the probability of
Bradley and Terry. The reward of a step is the utility of the cell that it leads to.

Source: the maze navigation of Poddar et al., 2024 (github.com/WEIRDLabUW/vpl): users compare single states by the
optimal value of their own goal, which is nearly linear in the distance, scaled to [0, 1]. Differs: theirs is a point
mass in a large maze of D4RL, whose users make no mistakes and whose episodes end at the goal.
"""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.records import EnvSpec, Number, TimeStep
from thespis.core.spaces import Box, CompositeSpace, Discrete
from thespis.runtime.keys import fold

MOVES = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))
"""Stay, up, down, left, right."""
TWO_GOALS = ("0...#...1", "....#....", ".........", "....#....", "##.###.##", "....#....", ".........", "ssss#ssss")
"""Rooms; a digit is the goal of a type of users, s a cell where episodes begin, # a wall."""
FOUR_GOALS = ("0...#...1", "....#....", ".........", "..2.#.3..", "##.###.##", "....#....", ".........", "ssss#ssss")
"""The same rooms with two more goals."""


class MazeTables(eqx.Module):
    """A maze as tables over its free cells."""

    next_cell: Int[Array, "cell action"]
    coordinates: Float[Array, "cell 2"]
    """Row and column, scaled to [-1, 1]."""
    distances: Int[Array, "user cell"]
    """Steps from the goal of each type of users; which methods may not read."""
    is_start: Bool[Array, " cell"]
    """Where episodes begin."""

    @property
    def utilities(self) -> Float[Array, "user cell"]:
        """What cells are worth to each type of users: from 1 at the goal to 0 at the largest distance."""
        return 1.0 - self.distances / self.distances.max(axis=1, keepdims=True)


@functools.cache
def maze_arrays(layout: tuple[str, ...]) -> tuple[np.ndarray, ...]:
    """The arrays of :class:`MazeTables`, in its order. Distances are by breadth-first search."""
    rows = np.array([list(row) for row in layout])
    free = np.argwhere(rows != "#")
    index = {tuple(place): i for i, place in enumerate(free.tolist())}
    targets = [
        [index.get((row + i, column + j), index[row, column]) for i, j in MOVES] for row, column in free.tolist()
    ]
    next_cell = np.array(targets, "int32")
    goals = [index[tuple(np.argwhere(rows == str(k))[0].tolist())] for k in range(np.char.isdigit(rows).sum())]
    distances = np.full((len(goals), len(free)), -1, "int32")
    for user, goal in enumerate(goals):
        frontier, steps = {goal}, 0
        while frontier:
            distances[user, list(frontier)] = steps
            reached = {int(cell) for place in frontier for cell in next_cell[place]}
            frontier, steps = {cell for cell in reached if distances[user, cell] < 0}, steps + 1
    scale = np.array(rows.shape, "float32") - 1
    return next_cell, (2 * free / scale - 1).astype("float32"), distances, rows[tuple(free.T)] == "s"


class MazeState(eqx.Module):
    """State of one episode: the user, their comparisons, the cell, and the number of steps taken."""

    user: Int[Array, ""]
    comparisons: Float[Array, "comparison 5"]
    cell: Int[Array, ""]
    time: Int[Array, ""]


class UserMaze(eqx.Module):
    """User maze: go where the user of the episode wants, who is known by a few comparisons of cells.

    ``layout``: rows of the maze, with a goal for each type of users, which are equally frequent. ``num_comparisons``:
    how many of the user's comparisons are seen. ``beta``: rationality of users, per unit of utility; with inf they make
    no mistakes. ``names_user``: whether the observation says which type the user is of. ``time_limit``: steps of an
    episode.

    Observations: ``cell``, one-hot; ``comparisons``, of each the coordinates of both cells and 1 where the first is
    preferred, else -1; ``user``, one-hot, or zeros.
    """

    layout: tuple[str, ...] = eqx.field(static=True, default=TWO_GOALS)
    num_comparisons: int = eqx.field(static=True, default=4)
    beta: Number = 10.0
    names_user: bool = eqx.field(static=True, default=False)
    time_limit: int = eqx.field(static=True, default=30)

    @property
    def tables(self) -> MazeTables:
        """The maze as tables."""
        return MazeTables(*map(jnp.asarray, maze_arrays(self.layout)))

    @property
    def num_users(self) -> int:
        """The number of types of users."""
        return len(maze_arrays(self.layout)[2])

    @property
    def spec(self) -> EnvSpec:
        """Spaces and time limit; the parameters of an episode are the tables, which methods may plan with."""
        observation_space = CompositeSpace(
            (
                ("cell", Box((len(maze_arrays(self.layout)[0]),), 0.0, 1.0)),
                ("comparisons", Box((self.num_comparisons, 5), -1.0, 1.0)),
                ("user", Box((self.num_users,), 0.0, 1.0)),
            )
        )
        return EnvSpec(
            "user-maze", observation_space, Discrete(len(MOVES)), time_limit=self.time_limit, params=self.tables
        )

    def random_queries(self, key: Key[Array, ""]) -> Int[Array, "comparison 2"]:
        """Pairs of different cells to compare."""
        num_cells = len(self.tables.coordinates)
        first = jax.random.randint(fold(key, "first"), (self.num_comparisons,), 0, num_cells)
        step = jax.random.randint(fold(key, "step"), (self.num_comparisons,), 1, num_cells)
        return jnp.stack([first, (first + step) % num_cells], axis=-1).astype("int32")

    def compare(
        self, user: Int[Array, ""], cells: Int[Array, "comparison 2"], key: Key[Array, ""]
    ) -> Float[Array, "comparison 5"]:
        """A user's answers to queries, as in observations."""
        utility, coordinates = self.tables.utilities[user][cells], self.tables.coordinates[cells]
        margin = utility[:, 0] - utility[:, 1]
        noise = jax.random.logistic(key, margin.shape) / self.beta
        label = jnp.where(margin + noise > 0, 1.0, -1.0)
        return jnp.concatenate([coordinates.reshape(-1, 4), label[:, None]], axis=1)

    def expected_utilities(self, comparisons: Float[Array, "comparison 5"]) -> Float[Array, " cell"]:
        """Expected utility of cells to a user who gave these answers, by Bayes' rule over the types of users.

        As returns are sums of utilities, the policy that is best for these is the best that can be done.
        """
        pairs = comparisons[:, :4].reshape(-1, 2, 1, 2)
        cells = jnp.argmin(jnp.abs(pairs - self.tables.coordinates).sum(axis=-1), axis=-1)
        utility = self.tables.utilities[:, cells]  # [user, comparison, 2]
        margins = comparisons[:, 4] * (utility[..., 0] - utility[..., 1])
        posterior = jax.nn.softmax(jax.nn.log_sigmoid(self.beta * margins).sum(axis=1))
        return posterior @ self.tables.utilities

    def reset(self, params: MazeTables, key: Key[Array, ""]) -> tuple[MazeState, TimeStep]:
        """A new user, with comparisons of random cells."""
        user = jax.random.randint(fold(key, "user"), (), 0, self.num_users, "int32")
        comparisons = self.compare(user, self.random_queries(fold(key, "queries")), fold(key, "answers"))
        cell = jax.random.categorical(fold(key, "start"), jnp.where(params.is_start, 0.0, -jnp.inf)).astype("int32")
        state = MazeState(user, comparisons, cell, jnp.zeros((), "int32"))
        return state, self._time_step(state, jnp.zeros(()))

    def step(self, state: MazeState, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[MazeState, TimeStep]:
        """Moves, if there is no wall."""
        cell = self.tables.next_cell[state.cell, action]
        after = MazeState(state.user, state.comparisons, cell, state.time + 1)
        return after, self._time_step(after, self.tables.utilities[state.user, cell])

    def _time_step(self, state: MazeState, reward: Float[Array, ""]) -> TimeStep:
        observation = {
            "cell": jax.nn.one_hot(state.cell, len(self.tables.coordinates)),
            "comparisons": state.comparisons,
            "user": jax.nn.one_hot(state.user, self.num_users) * self.names_user,
        }
        return TimeStep(observation, reward, jnp.zeros((), bool), state.time >= self.time_limit)
