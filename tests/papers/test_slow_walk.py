"""The slow walk and the grid against second descriptions of them."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.conformance import check_environment
from thespis.envs.compiled.goal_grid import MOVES, GoalGrid, Searching
from thespis.envs.compiled.slow_walk import SlowWalk, Walking

KEY = jax.random.key(0)


def chain(world, right):
    """Chances from place to place where ``right`` is chosen with this chance everywhere, in double precision."""
    n, p = world.places, right * (1 + world.grip) / 2 + (1 - right) * (1 - world.grip) / 2
    matrix = world.stay * np.eye(n)
    for i in range(n):
        matrix[i, min(i + 1, n - 1)] += (1 - world.stay) * p
        matrix[i, max(i - 1, 0)] += (1 - world.stay) * (1 - p)
    return matrix


@pytest.mark.parametrize("right", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("world", [SlowWalk(), SlowWalk(places=6, stay=0.6, grip=0.9)])
def test_it_mixes_as_slowly_as_the_second_eigenvalue_says(world, right):
    values = np.sort(np.abs(np.linalg.eigvals(chain(world, right))))
    assert values[-1] == pytest.approx(1.0)
    assert world.relaxation(right) == pytest.approx(1 / (1 - values[-2]))


def test_that_is_the_chain_that_is_walked():
    """20,000 steps from every place: shares within five standard deviations; and what they pay."""
    world, count = SlowWalk(places=4, stay=0.3, grip=0.5, lure=0.2), 20_000

    @jax.jit
    def steps(place, action):
        state = Walking(place, jnp.int32(0))
        after, step = jax.vmap(lambda key: world.step(state, action, key))(jax.random.split(KEY, count))
        return after.place, step.reward, step.observation

    for place, action in itertools.product(range(4), range(2)):
        after, reward, seen = steps(jnp.int32(place), jnp.int32(action))
        found = np.bincount(after, minlength=4) / count
        wanted = chain(world, float(action))[place]
        assert (np.abs(found - wanted) <= 5 * np.sqrt(wanted * (1 - wanted) / count)).all()
        np.testing.assert_allclose(reward, np.array([0.2, 0.0, 0.0, 1.0], "float32")[after])
        np.testing.assert_array_equal(np.asarray(seen).argmax(1), after)


def test_the_prize_is_worth_more_than_the_lure():
    """In the long run, and in an episode from the middle, by powers of the chain."""
    world = SlowWalk()
    paid = np.eye(world.places)[0] * world.lure + np.eye(world.places)[-1]
    gains = {}
    for right in (0.0, 0.5, 1.0):
        at, total = np.eye(world.places)[world.places // 2], 0.0
        for _ in range(world.limit):
            at = at @ chain(world, right)
            total += at @ paid
        gains[right] = total
    assert gains[1.0] > 70 > 25 > gains[0.5] > gains[0.0] > 10
    assert world.relaxation(0.5) > 32 > world.relaxation(1.0) > 16  # longer than a trajectory of four levels


def test_every_step_of_the_grid_is_as_told():
    n, world = 4, GoalGrid(side=4)
    cells = list(itertools.product(range(n), range(n)))
    pairs = list(itertools.product(cells, range(len(MOVES))))
    places, actions = np.array([c for c, _ in pairs], "int32"), np.array([a for _, a in pairs], "int32")
    after, step = jax.vmap(lambda p, a: world.step(Searching(p, jnp.int32(0)), a, KEY))(places, actions)
    names = {0: (0, 0), 1: (-1, 0), 2: (1, 0), 3: (0, -1), 4: (0, 1)}
    for (r, c), action, to, reward, seen in zip(
        [c for c, _ in pairs], actions, after.place, step.reward, step.observation, strict=True
    ):
        wanted = r + names[int(action)][0], c + names[int(action)][1]
        wanted = wanted if set(wanted) <= set(range(n)) else (r, c)
        assert tuple(np.asarray(to)) == wanted
        assert float(reward) == (wanted == (n - 1, n - 1))
        assert int(seen.argmax()) == cells.index(wanted)
    assert not step.terminated.any()


@pytest.mark.parametrize("world", [SlowWalk(places=5, limit=9), GoalGrid(side=3, limit=9)])
def test_they_keep_the_laws(world):
    check_environment(world)
