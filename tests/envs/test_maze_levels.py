"""Levels of the maze: paths against breadth-first search, random levels against enumeration, edits and codes."""

import itertools
from collections import Counter, deque

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2
from test_maze import RECORDED, play, recorded_levels, sample_levels

from thespis.core.contracts import Levels
from thespis.envs.compiled.maze import Maze
from thespis.envs.compiled.maze_levels import (
    TEST_MAZE_NAMES,
    MazeLevels,
    load_level,
    min_num_steps,
    parse_level,
    shortest_path_length,
)

LEVELS = MazeLevels()
MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))
NUM_MOVES = dict(zip(TEST_MAZE_NAMES, (20, 22, 96, 96, 96, 40, 56, 39), strict=True))
NUM_STEPS = dict(zip(TEST_MAZE_NAMES, (26, 28, 113, 113, 113, 54, 73, 54), strict=True))


def rows(batch):
    """The single levels of a batch, as numpy arrays."""
    batch = jax.tree.map(np.asarray, batch)
    return [jax.tree.map(lambda x, i=i: x[i], batch) for i in range(len(batch.direction))]


def search(start, neighbours, is_goal):
    """Breadth-first search: the fewest edges from ``start`` to a goal and the labels of one such path, or ``None``."""
    queue, seen = deque([(start, ())]), {start}
    while queue:
        node, path = queue.popleft()
        if is_goal(node):
            return path
        for label, other in neighbours(node):
            if other not in seen:
                seen.add(other)
                queue.append((other, (*path, label)))
    return None


def shortest_path(level):
    """Moves from cell to cell."""
    free = {tuple(cell) for cell in np.argwhere(~level.walls).tolist()}

    def neighbours(cell):
        for i, (row, column) in enumerate(MOVES):
            if (other := (cell[0] + row, cell[1] + column)) in free:
                yield i, other

    goal = tuple(level.goal.tolist())
    return search(tuple(level.agent.tolist()), neighbours, lambda cell: cell == goal)


def shortest_plan(level):
    """Actions: 0 turns left, 1 right, 2 moves forward."""
    free = {tuple(cell) for cell in np.argwhere(~level.walls).tolist()}

    def neighbours(node):
        row, column, direction = node
        yield 0, (row, column, (direction - 1) % 4)
        yield 1, (row, column, (direction + 1) % 4)
        ahead = row + MOVES[direction][0], column + MOVES[direction][1]
        if ahead in free:
            yield 2, (*ahead, direction)

    goal = tuple(level.goal.tolist())
    return search((*level.agent.tolist(), int(level.direction)), neighbours, lambda node: node[:2] == goal)


@pytest.mark.long
def test_paths_match_breadth_first_search():
    """500 levels of 13 by 13 cells, with up to 120 walls, so that many cannot be solved."""
    levels = sample_levels(MazeLevels(num_walls=120), 500)
    solvable = np.asarray(jax.jit(jax.vmap(LEVELS.solvable))(levels))
    lengths = np.asarray(jax.jit(jax.vmap(shortest_path_length))(levels))
    steps = np.asarray(jax.jit(jax.vmap(min_num_steps))(levels))
    for i, level in enumerate(rows(levels)):
        path, plan = shortest_path(level), shortest_plan(level)
        assert solvable[i] == (path is not None)
        assert lengths[i] == (-1 if path is None else len(path))
        assert steps[i] == (-1 if plan is None else len(plan))
    assert 0.5 < solvable.mean() < 0.9


def test_shortest_paths_match_jaxued():
    steps = np.asarray(jax.jit(jax.vmap(min_num_steps))(recorded_levels()))
    np.testing.assert_array_equal(steps, RECORDED["min_num_steps"])
    assert (steps == -1).any()


@pytest.mark.parametrize("name", TEST_MAZE_NAMES)
def test_mazes_are_solvable(name):
    """The shortest plan, played in the environment, reaches the goal with its last step."""
    level, env = load_level(name), Maze(name)
    plan = shortest_plan(jax.tree.map(np.asarray, level))
    assert len(plan) == NUM_STEPS[name] == min_num_steps(level)
    assert len(shortest_path(jax.tree.map(np.asarray, level))) == NUM_MOVES[name] == shortest_path_length(level)
    _, steps = play(env, jax.tree.map(lambda x: x[None], level), jnp.array([plan]))
    assert steps.terminated[0].tolist() == [False] * (len(plan) - 1) + [True]
    assert steps.reward[0, -1] == pytest.approx(1 - 0.9 * len(plan) / 250)


def test_levels_fulfil_the_protocol():
    assert isinstance(LEVELS, Levels) and isinstance(Maze().levels, Levels)


def assert_uniform(counts, num_outcomes):
    """A chi-squared test at one in ten thousand, on counts of equally likely outcomes."""
    counts = np.pad(np.asarray(counts, float), (0, num_outcomes - len(counts)))
    expected = counts.sum() / num_outcomes
    assert ((counts - expected) ** 2 / expected).sum() < chi2.ppf(1 - 1e-4, num_outcomes - 1)


@pytest.mark.long
def test_random_levels_have_uniform_numbers_of_walls():
    walls, agent, direction, goal = jax.tree.leaves(jax.tree.map(np.asarray, sample_levels(LEVELS, 6_100)))
    counts = walls.sum((1, 2))
    assert counts.min() == 0 and counts.max() == 60
    assert_uniform(np.bincount(counts), 61)
    assert_uniform(np.bincount(direction), 4)
    index = np.arange(len(walls))
    assert not walls[index, agent[:, 0], agent[:, 1]].any() and not walls[index, goal[:, 0], goal[:, 1]].any()
    assert (agent != goal).any(axis=1).all()
    for positions in (agent, goal):
        assert_uniform(np.bincount(positions @ [13, 1]), 169)
    always = sample_levels(MazeLevels(num_walls=25, vary_num_walls=False), 100)
    assert set(np.asarray(always.walls).sum((1, 2))) == {25}


def test_random_levels_of_a_small_grid_are_equally_likely():
    """2 by 3 cells with 2 walls have 15 placements of walls, and 4 agents, 3 goals and 4 directions in each."""
    small = MazeLevels((2, 3), num_walls=2, vary_num_walls=False)
    codes = np.asarray(jax.jit(jax.vmap(small.encode))(sample_levels(small, 14_400)))
    counts = Counter(map(tuple, codes.tolist()))
    assert len(counts) == 15 * 4 * 3 * 4
    assert_uniform(list(counts.values()), 720)


@pytest.mark.long
def test_codes_of_different_levels_differ():
    levels = rows(sample_levels(LEVELS, 1_000))
    as_bytes = {b"".join(leaf.tobytes() for leaf in jax.tree.leaves(level)) for level in levels}
    encode = jax.jit(LEVELS.encode)
    codes = {tuple(np.asarray(encode(level)).tolist()) for level in levels}
    assert len(as_bytes) == len(codes) == 1_000


def test_codes_of_the_smallest_changes_differ():
    """Every single wall, agent, goal and direction: the code tells all of them apart, and nothing else enters it."""
    level, cells = load_level("Labyrinth"), list(itertools.product(range(13), range(13)))
    walls = np.asarray(level.walls)[None] ^ np.eye(169, dtype=bool).reshape(169, 13, 13)
    places = jnp.array(cells, "int32")

    def codes(field, values):
        variants = jax.vmap(lambda value: eqx.tree_at(lambda tree: getattr(tree, field), level, value))(values)
        return np.asarray(jax.vmap(LEVELS.encode)(variants)).tolist()

    own = tuple(np.asarray(LEVELS.encode(level)).tolist())
    changed = {"walls": jnp.asarray(walls), "agent": places, "goal": places, "direction": jnp.arange(4)}
    variants = {tuple(code) for field, values in changed.items() for code in codes(field, values)}
    assert own in variants
    assert len(variants) == 1 + 169 + 168 + 168 + 3  # all but the three that change nothing


@pytest.mark.long
@pytest.mark.parametrize("num_edits", [0, 1, 5, 20])
def test_edits_change_at_most_so_many_things(num_edits):
    parents = sample_levels(LEVELS, 300)
    keys = jax.random.split(jax.random.key(1), 300)
    children = jax.jit(jax.vmap(lambda level, key: LEVELS.mutate(level, key, num_edits)))(parents, keys)
    traced = jax.jit(jax.vmap(LEVELS.mutate, (0, 0, None)))(parents, keys, num_edits)
    jax.tree.map(np.testing.assert_array_equal, children, traced)
    changes = []
    for parent, child in zip(rows(parents), rows(children), strict=True):
        assert child.walls.dtype == bool and child.goal.dtype == "int32"
        np.testing.assert_array_equal(child.agent, parent.agent)
        assert child.direction == parent.direction
        assert not child.walls[tuple(child.agent)] and not child.walls[tuple(child.goal)]
        assert (child.agent != child.goal).any()
        changes.append((child.walls != parent.walls).sum() + (child.goal != parent.goal).any())
    assert max(changes) <= num_edits
    assert num_edits == 0 or np.mean(changes) > 0.3 * num_edits


@pytest.mark.long
def test_single_edits_are_equally_likely():
    """None, a wall or the goal with a third each; every free place is as likely as any other."""
    parent = load_level("SixteenRooms")
    keys = jax.random.split(jax.random.key(0), 12_000)
    children = rows(jax.jit(jax.vmap(lambda key: LEVELS.mutate(parent, key, 1)))(keys))
    walls, old_goal = np.asarray(parent.walls), tuple(np.asarray(parent.goal))
    toggled = Counter(np.flatnonzero(child.walls != walls)[0] for child in children if (child.walls != walls).any())
    moved = Counter(tuple(child.goal) for child in children if tuple(child.goal) != old_goal)
    kinds = [toggled.total(), moved.total(), len(children) - toggled.total() - moved.total()]
    assert_uniform(kinds, 3)
    assert len(toggled) == 167 and len(moved) == (~walls).sum() - 2
    assert_uniform(list(toggled.values()), 167)
    assert_uniform(list(moved.values()), len(moved))


@pytest.mark.long
def test_the_goal_stays_where_no_cell_is_free():
    levels = MazeLevels((1, 3), num_walls=1)
    mutate = jax.jit(lambda key: levels.mutate(parse_level(">G#"), key, 1))
    children = rows(jax.vmap(mutate)(jax.random.split(jax.random.key(0), 60)))
    assert {tuple(child.goal) for child in children} == {(0, 1)}
    assert {bool(child.walls[0, 2]) for child in children} == {True, False}
