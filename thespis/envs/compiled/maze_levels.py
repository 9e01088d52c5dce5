"""Levels of the maze: the named test mazes, text form, random generation, edits, and shortest paths.

Generation and edits are those of the maze benchmarks of unsupervised environment design: Dennis et al. (2020,
arXiv:2012.02096), Jiang et al. (2021, arXiv:2110.02439) and Parker-Holder et al. (2022, arXiv:2203.01302). The test
mazes are those of these papers, with the starts and goals of jaxued (Coward et al. 2024, arXiv:2403.13091).
"""

from __future__ import annotations

import difflib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, UInt32

from thespis.core.errors import UserError

NORTH, EAST, SOUTH, WEST = (-1, 0), (0, 1), (1, 0), (0, -1)
DIRECTIONS = (EAST, SOUTH, WEST, NORTH)
"""Moves in each direction, as ``(row, column)``. Turning right leads to the next direction."""
HEADINGS = ">v<^"
"""Characters of the agent in a text, by direction."""
UNREACHABLE = -1
"""Length of a path where there is none."""
_WORD_BITS = 32

TEST_MAZE_NAMES = (
    "SixteenRooms",
    "SixteenRooms2",
    "Labyrinth",
    "LabyrinthFlipped",
    "Labyrinth2",
    "StandardMaze",
    "StandardMaze2",
    "StandardMaze3",
)
"""Names of the mazes on which policies are tested, from left to right in the text below."""

_TEST_MAZES = """
...#..#..#... ...#.....#... ............. ............. >#........... .....#>...#.. ...#.#....#.. ...>#.#......
.>.......#... .>....#..#... .###########. .###########. .#.#########. .###.####.##. .#.#.####...# .####.#.####.
...#..#...... ...#..#..#... .#.........#. .#.........#. .#.#.......#. .#........... .#........#.. .#....#.#....
#.###.##.###. ####.##.###.# .#.#######.#. .#.#######.#. .#.#.#####.#. .########.### .########.### ...####.#.#.#
...#......... ...#..#...... .#.#.....#.#. .#.#.....#.#. .#.#.#...#.#. ........#.... ...#..#.#.#.G ##.#....#.#..
......#..#... ......#..#... .#.#.###.#.#. .#.#.###.#.#. ...#.#.#.#.#. ######.#####. ##.#.##.#.#.. ...#.##.#.##.
##.#.##.###.# #.#####.##### .#.#.#G#.#.#. .#.#.#G#.#.#. ####.#G#.#.#. ....#..#..... >#.#....#.##. .#.#.#..#..#G
...#.....#... ...#..#..#... .#.#.#.#.#.#. .#.#.#.#.#.#. ...#.###.#.#. .##...##.#### .#.##.###..#. .#.#.#.###.##
...#..#...... ...#......... .#...#...#.#. .#.#...#...#. .#.#.....#.#. ..#.#..#...#. .#..#..###.#. .#...#.#.#...
.####.##.#.## ##.##.##.#### .#########.#. .#.#########. .#.#######.#. #.#.##.###.#. .##.##.#.#.#. .###.#.#.###.
...#..#..#... ...#..#..#... .....#.....#. .#.....#..... .#.........#. #.#..#...#... .#...#.#.#.#. .#...#.#...#.
......#....G. ......#....G. ####.#.#####. .#####.#.#### .###########. #.##.###.###. .#.#.#.#.#.#. .#.###.#.#.#.
...#.....#... ...#..#..#... >....#....... .......#....< ............. ...#..G#.#... ...#...#..... .#...#...#...
"""


class MazeLevel(eqx.Module):
    """One level of the maze. Positions are ``(row, column)``; ``direction`` is an index of :data:`DIRECTIONS`."""

    walls: Bool[Array, "height width"]
    agent: Int[Array, "2"]
    direction: Int[Array, ""]
    goal: Int[Array, "2"]


def parse_level(text: str) -> MazeLevel:
    """A level from rows of ``#`` (wall), ``.`` (free), ``G`` (goal) and one of ``> v < ^`` (agent).

    Rows are separated by line ends or slashes.

    Raises:
        UserError: if rows differ in length, a character is unknown, or there is not one agent and one goal.
    """
    rows = text.strip().replace("/", "\n").split("\n")
    cells = "".join(rows)
    if len({len(row) for row in rows}) != 1 or set(cells) - set(f"#.G{HEADINGS}"):
        raise UserError(
            f"cannot read the maze {'/'.join(rows)!r}: write rows of equal length with # . G and one of > v < ^"
        )
    agents = [i for i, cell in enumerate(cells) if cell in HEADINGS]
    if len(agents) != 1 or cells.count("G") != 1:
        raise UserError(f"the maze {'/'.join(rows)!r} needs one agent (one of > v < ^) and one goal (G)")
    width, agent, goal = len(rows[0]), agents[0], cells.index("G")
    return MazeLevel(
        jnp.asarray(np.array([cell == "#" for cell in cells]).reshape(len(rows), width)),
        jnp.array(divmod(agent, width), "int32"),
        jnp.asarray(HEADINGS.index(cells[agent]), "int32"),
        jnp.array(divmod(goal, width), "int32"),
    )


def format_level(level: MazeLevel) -> str:
    """A level as text, one row a line: the inverse of :func:`parse_level`."""
    cells = np.where(np.asarray(level.walls), "#", ".")
    cells[tuple(np.asarray(level.goal))] = "G"
    cells[tuple(np.asarray(level.agent))] = HEADINGS[int(level.direction)]
    return "\n".join("".join(row) for row in cells)


MAZES: dict[str, str] = {
    "Empty": "\n".join([">............", *["............."] * 11, "............G"]),
    **{
        name: "\n".join(row.split()[i] for row in _TEST_MAZES.strip().split("\n"))
        for i, name in enumerate(TEST_MAZE_NAMES)
    },
}
"""Mazes by name, as texts: one without walls, and the test mazes."""


def load_level(name: str) -> MazeLevel:
    """The level with a name in :data:`MAZES`, or the one that a text with a goal describes.

    Raises:
        UserError: for an unknown name (with the nearest), or a text that is no level.
    """
    if name in MAZES:
        return parse_level(MAZES[name])
    if set(name) <= set(f"#.G/\n{HEADINGS}"):
        return parse_level(name)
    nearest = difflib.get_close_matches(name, MAZES, 1, 0.5)
    hint = f"did you mean {nearest[0]}? " if nearest else ""
    raise UserError(f"unknown maze {name!r}; {hint}mazes: {', '.join(MAZES)}")


class MazeLevels(eqx.Module):
    """Random levels of the maze, edits, and a code by which equal levels are recognised.

    :meth:`sample` places walls on different cells, ``num_walls`` of them, or uniformly ``0 .. num_walls`` with
    ``vary_num_walls``; then the agent, its direction and the goal at random on the cells left. Not all levels are
    solvable. ``num_walls=0`` gives the empty levels from which ACCEL starts.

    Each edit of :meth:`mutate` is, with equal probabilities, none, toggling one wall, or moving the goal to a free
    cell. The agent is not moved, and neither its cell nor the goal's becomes a wall.

    Source: Jiang et al. (2021) place up to 60 (or always 25) walls; the edits are those of ``move_goal_flip_walls`` in
    minimax, which jaxued has as ``make_level_mutator_minimax``.

    Differs from jaxued, whose walls are drawn with replacement: 25 of them occupy 23.3 cells on average.
    """

    shape: tuple[int, int] = eqx.field(static=True, default=(13, 13))
    """Rows and columns."""
    num_walls: int = eqx.field(static=True, default=60)
    """Largest number of walls of a random level."""
    vary_num_walls: bool = eqx.field(static=True, default=True)
    """Whether the number of walls is uniform up to ``num_walls``, and not always ``num_walls``."""

    def __check_init__(self):
        """Reject more walls than fit beside agent and goal."""
        most = self.shape[0] * self.shape[1] - 2
        if not 0 <= self.num_walls <= most:
            raise UserError(f"num_walls is {self.num_walls}: give 0 to {most} in a maze of {self.shape}")

    def sample(self, key: Key[Array, ""]) -> MazeLevel:
        """A level at random."""
        num_key, wall_key, agent_key, direction_key, goal_key = jax.random.split(key, 5)
        num_walls = jax.random.randint(num_key, (), 0, self.num_walls + 1) if self.vary_num_walls else self.num_walls
        order = jax.random.permutation(wall_key, self.shape[0] * self.shape[1])
        walls = order < num_walls
        agent, _ = _random_cell(agent_key, ~walls)
        goal, _ = _random_cell(goal_key, (~walls).at[agent].set(False))
        return MazeLevel(
            walls.reshape(self.shape),
            self._position(agent),
            jax.random.randint(direction_key, (), 0, len(DIRECTIONS)),
            self._position(goal),
        )

    def mutate(self, level: MazeLevel, key: Key[Array, ""], num_edits: int | Int[Array, ""]) -> MazeLevel:
        """The level after ``num_edits`` edits."""
        return jax.lax.fori_loop(0, num_edits, lambda i, level: self._edit(level, jax.random.fold_in(key, i)), level)

    def _edit(self, level: MazeLevel, key: Key[Array, ""]) -> MazeLevel:
        kind_key, wall_key, goal_key = jax.random.split(key, 3)
        kind = jax.random.randint(kind_key, (), 0, 3)
        walls, occupied = level.walls.ravel(), jnp.array([self._cell(level.agent), self._cell(level.goal)])
        toggled, _ = _random_cell(wall_key, jnp.ones_like(walls).at[occupied].set(False))
        moved, exists = _random_cell(goal_key, (~walls).at[occupied].set(False))
        return MazeLevel(
            jnp.where(kind == 1, walls.at[toggled].set(~walls[toggled]), walls).reshape(self.shape),
            level.agent,
            level.direction,
            jnp.where((kind == 2) & exists, self._position(moved), level.goal),
        )

    def solvable(self, level: MazeLevel) -> Bool[Array, ""]:
        """Whether a path leads to the goal."""
        return shortest_path_length(level) >= 0

    def encode(self, level: MazeLevel) -> UInt32[Array, " words"]:
        """The walls as bits of 32-bit words; then agent, goal and direction as one more word."""
        bits = jnp.pad(level.walls.ravel(), (0, -level.walls.size % _WORD_BITS)).reshape(-1, _WORD_BITS)
        words = jnp.sum(bits * (jnp.uint32(1) << jnp.arange(_WORD_BITS, dtype="uint32")), axis=1, dtype="uint32")
        places = self._cell(level.agent) * level.walls.size + self._cell(level.goal)
        return jnp.append(words, (places * len(DIRECTIONS) + level.direction).astype("uint32"))

    def _cell(self, position: Int[Array, "2"]) -> Int[Array, ""]:
        return position[0] * self.shape[1] + position[1]

    def _position(self, cell: Int[Array, ""]) -> Int[Array, "2"]:
        return jnp.stack([cell // self.shape[1], cell % self.shape[1]])


def shortest_path_length(level: MazeLevel) -> Int[Array, ""]:
    """Number of moves from cell to cell on a shortest path to the goal; :data:`UNREACHABLE` where there is none."""
    free = ~level.walls
    start = jnp.zeros_like(free).at[tuple(level.agent)].set(True)

    def is_open(carry):
        reached, grew, _ = carry
        return grew & ~reached[tuple(level.goal)]

    def spread(carry):
        reached, _, length = carry
        padded = jnp.pad(reached, 1)
        neighbours = padded[:-2, 1:-1] | padded[2:, 1:-1] | padded[1:-1, :-2] | padded[1:-1, 2:]
        wider = reached | (neighbours & free)
        return wider, jnp.any(wider != reached), length + 1

    reached, _, length = jax.lax.while_loop(is_open, spread, (start, jnp.array(True), jnp.int32(0)))
    return jnp.where(reached[tuple(level.goal)], length, UNREACHABLE)


def min_num_steps(level: MazeLevel) -> Int[Array, ""]:
    """Fewest actions, turns included, that lead to the goal; :data:`UNREACHABLE` where none do.

    The return of an optimal policy follows from it: ``1 - 0.9 min_num_steps / time_limit`` if it is within the limit.
    """
    height, width = level.walls.shape
    free = ~level.walls
    start = jnp.zeros((len(DIRECTIONS), height, width), bool).at[(level.direction, *level.agent)].set(True)

    def is_open(carry):
        reached, grew, _ = carry
        return grew & ~jnp.any(reached[(slice(None), *level.goal)])

    def spread(carry):
        reached, _, steps = carry
        padded = jnp.pad(reached, ((0, 0), (1, 1), (1, 1)))
        moved = jnp.stack(
            [
                padded[i, 1 - row : 1 - row + height, 1 - column : 1 - column + width]
                for i, (row, column) in enumerate(DIRECTIONS)
            ]
        )
        wider = reached | jnp.roll(reached, 1, axis=0) | jnp.roll(reached, -1, axis=0) | (moved & free)
        return wider, jnp.any(wider != reached), steps + 1

    reached, _, steps = jax.lax.while_loop(is_open, spread, (start, jnp.array(True), jnp.int32(0)))
    return jnp.where(jnp.any(reached[(slice(None), *level.goal)]), steps, UNREACHABLE)


def _random_cell(key: Key[Array, ""], allowed: Bool[Array, " cells"]) -> tuple[Int[Array, ""], Bool[Array, ""]]:
    """One of the allowed cells, uniformly, and whether there is any."""
    rank = jnp.cumsum(allowed)
    chosen = jax.random.randint(key, (), 0, jnp.maximum(rank[-1], 1))
    return jnp.sum(rank <= chosen), rank[-1] > 0
