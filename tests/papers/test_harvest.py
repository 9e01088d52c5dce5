"""The row of fields against a second description of it, and against every way to play it."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.conformance import check_environment
from thespis.envs.compiled.harvest import GROUP, Harvest, Row

SMALL = Harvest(cells=5, variants=2, limit=6)


def told(world, places, actions):
    """Where everyone goes and what all are paid, in words rather than arrays."""
    kinds = ["stay", "left", "right"] + ["sickle"] * world.variants + ["ladder"] * world.variants
    does = [kinds[a] for a in actions]
    moved = []
    for place, deed in zip(places, does, strict=True):
        place += {"left": -1, "right": 1}.get(deed, 0)
        moved.append(min(max(place, 0), world.cells - 1))
    low = sum(p == 0 and d == "sickle" for p, d in zip(places, does, strict=True))
    high = sum(p == world.cells - 1 and d == "ladder" for p, d in zip(places, does, strict=True))
    return tuple(moved), min(low, high)


@pytest.mark.parametrize("agents", [2, 3])
def test_every_step_from_every_place_is_as_told(agents):
    world = Harvest(agents=agents, cells=3, variants=1)
    both = itertools.product(
        itertools.product(range(3), repeat=agents), itertools.product(range(world.actions), repeat=agents)
    )
    places, actions = (np.array(x, "int32") for x in zip(*both, strict=True))

    def one(place, action):
        state = Row(place, jnp.zeros(agents, "int32"), jnp.zeros((), "int32"))
        return world.step(state, {GROUP: action}, jax.random.key(0))

    after, step = jax.jit(jax.vmap(one))(places, actions)
    wanted = [told(world, p, a) for p, a in zip(places.tolist(), actions.tolist(), strict=True)]
    np.testing.assert_array_equal(after.place, [w[0] for w in wanted])
    np.testing.assert_array_equal(step.reward, [w[1] for w in wanted])
    seen = np.asarray(step.observation[GROUP]).reshape(len(places), agents, agents, -1)
    np.testing.assert_array_equal(seen[:, 1, 0, :3].argmax(-1), after.place[:, 1])  # itself first
    np.testing.assert_array_equal(seen[:, 1, -1, :3].argmax(-1), after.place[:, 0])
    np.testing.assert_array_equal(seen[:, 0, 0, 3:].argmax(-1), after.tool[:, 0])


@pytest.mark.parametrize("world", [SMALL, Harvest(agents=4, cells=3, variants=1, limit=3)], ids=["two", "four"])
def test_the_best_of_all_ways_to_play_is_the_known_one(world):
    deeds = (0, 1, 2, 3, 3 + world.variants)

    @functools.cache
    def best(places, left):
        if not left:
            return 0
        found = (told(world, places, a) for a in itertools.product(deeds, repeat=world.agents))
        return max(paid + best(after, left - 1) for after, paid in found)

    known = world.agents // 2 * (world.limit - world.cells // 2)
    assert best((world.cells // 2,) * world.agents, world.limit) == known


def test_it_keeps_the_laws():
    check_environment(SMALL)
