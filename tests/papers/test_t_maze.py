"""The T-maze against a second description of it, its best value in closed form, and all play without memory."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.conformance import check_environment
from thespis.envs.compiled.t_maze import EAST, NORTH, SOUTH, WEST, TMaze, Walker

LENGTH = 4
WORLD = TMaze(LENGTH, limit=12)
SEEN = {"start-north": (0, 1, 1), "start-south": (1, 1, 0), "corridor": (1, 0, 1), "end": (0, 1, 0)}


def told(place, action, north):
    """Where a step leads (``None``: out of the maze), and what it is paid."""
    if place == LENGTH and action in (NORTH, SOUTH):
        return None, 4.0 if action == (NORTH if north else SOUTH) else -0.1
    free = {EAST: place < LENGTH, WEST: place > 0}.get(action, False)
    return (place + (1 if action == EAST else -1), 0.0) if free else (place, -0.1)


def kind(place, north):
    return f"start-{'north' if north else 'south'}" if place == 0 else "end" if place == LENGTH else "corridor"


def test_every_step_from_every_place_is_as_told():
    cases = list(itertools.product(range(LENGTH + 1), range(4), (True, False)))
    place, action, north = (np.array(x) for x in zip(*cases, strict=True))

    def one(place, action, north):
        return WORLD.step(Walker(place, jnp.zeros((), "int32"), north), action, jax.random.key(0))

    after, step = jax.jit(jax.vmap(one))(place.astype("int32"), action.astype("int32"), north)
    for i, (at, move, up) in enumerate(cases):
        to, paid = told(at, move, up)
        assert (bool(step.terminated[i]), float(step.reward[i])) == (to is None, pytest.approx(paid)), cases[i]
        if to is not None:
            assert after.place[i] == to and after.time[i] == 1
            assert tuple(step.observation[i]) == SEEN[kind(to, up)], cases[i]


def value(acts, north, discount):
    """Of walking by ``acts`` (what is seen to action) until the limit."""
    place, total = 0, 0.0
    for t in range(WORLD.limit):
        place, paid = told(place, acts[kind(place, north)], north)
        total += discount**t * paid
        if place is None:
            break
    return total


def in_the_world(acts, north):
    """The undiscounted return of the same, played in the world."""
    state = Walker(jnp.zeros((), "int32"), jnp.zeros((), "int32"), jnp.asarray(north))
    place, total, ended = 0, 0.0, False
    step = jax.jit(WORLD.step)
    while not ended:
        state, answer = step(state, jnp.int32(acts[kind(place, north)]), jax.random.key(0))
        place, total = int(state.place), total + float(answer.reward)
        ended = bool(answer.terminated | answer.truncated)
    return total, int(state.time)


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_the_best_without_memory_is_luck_and_the_best_with_it_is_known(discount):
    ways = [dict(zip(SEEN, acts, strict=True)) for acts in itertools.product(range(4), repeat=4)]
    blind = max(np.mean([value(acts, north, discount) for north in (True, False)]) for acts in ways)
    assert blind == pytest.approx(discount**LENGTH * (4 - 0.1) / 2)
    places = range(LENGTH + 1)
    best = functools.reduce(  # value iteration over where one is, for one who remembers the sign
        lambda v, _: [max(p + (0 if to is None else discount * v[to]) for to, p in (told(x, a, True) for a in range(4)))
                      for x in places],
        range(50), [0.0] * (LENGTH + 1),
    )  # fmt: skip
    assert best[0] == pytest.approx(discount**LENGTH * 4)


def test_whole_episodes_in_the_world():
    east = dict.fromkeys(SEEN, EAST)
    assert in_the_world(east | {"end": NORTH}, True) == (pytest.approx(4.0), LENGTH + 1)
    assert in_the_world(east | {"end": NORTH}, False) == (pytest.approx(-0.1), LENGTH + 1)
    assert in_the_world(east, True) == (pytest.approx(-0.1 * (12 - LENGTH)), 12)


def test_signs_are_as_likely_and_noise_is_in_the_corridor_alone():
    world = TMaze(LENGTH, noise=True)
    keys = jax.random.split(jax.random.key(0), 500)
    state, first = jax.jit(jax.vmap(lambda key: world.reset((), key)))(keys)
    assert 0.4 < np.mean(state.north) < 0.6
    np.testing.assert_array_equal(first.observation[:, 2], state.north)
    step = jax.jit(jax.vmap(world.step, (0, None, 0)))
    seen = []
    for _ in range(LENGTH):
        state, answer = step(state, jnp.int32(EAST), keys)
        seen.append(np.asarray(answer.observation))
    corridor = np.concatenate(seen[:-1])
    assert not corridor[:, 1].any() and np.abs(corridor[:, [0, 2]].mean(0) - 0.5).max() < 0.05
    assert np.abs(np.corrcoef(corridor[:, 0], corridor[:, 2])[0, 1]) < 0.1 and corridor.std() > 0.2
    np.testing.assert_array_equal(seen[-1], np.tile(SEEN["end"], (500, 1)))


@pytest.mark.parametrize("noise", [False, True])
def test_it_keeps_the_laws(noise):
    check_environment(TMaze(2, 6, noise))
