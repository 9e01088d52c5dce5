"""The two rooms against a second description of them, and against every way to play."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from thespis.core.conformance import check_environment
from thespis.envs.compiled.two_rooms import GROUP, MARKS, MOVES, Rooms, TwoRooms

WORLD = TwoRooms()
MAP = ["n..#..f", "...D...", "...#..."]
"""Near and far switch, wall, door."""
CELLS = [(r, c) for r in range(3) for c in range(7) if MAP[r][c] != "#"]


def told(places, actions):
    """Where everyone goes, and whether that is the end."""
    opened = any(MAP[r][c] in "nf" for r, c in places)
    after = []
    for (r, c), action in zip(places, actions, strict=True):
        to = r + MOVES[action][0], c + MOVES[action][1]
        inside = to[0] in range(3) and to[1] in range(7)
        free = inside and (to == (r, c) or (MAP[to[0]][to[1]] != "#" and (MAP[to[0]][to[1]] != "D" or opened)))
        after.append(to if free else (r, c))
    return tuple(after), all(c > 3 for _, c in after)


def stepped(places, actions):
    def one(place, action):
        return WORLD.step(Rooms(place, jnp.zeros((), "int32")), {GROUP: action}, jax.random.key(0))

    return jax.jit(jax.vmap(one))(np.array(places, "int32"), np.array(actions, "int32"))


def test_every_step_from_every_place_is_as_told():
    both = itertools.product(itertools.product(CELLS, repeat=2), itertools.product(range(5), repeat=2))
    places, actions = zip(*both, strict=True)
    after, step = stepped(places, actions)
    wanted = [told(p, a) for p, a in zip(places, actions, strict=True)]
    np.testing.assert_array_equal(after.place, [w[0] for w in wanted])
    np.testing.assert_array_equal(step.reward, [w[1] for w in wanted])
    np.testing.assert_array_equal(step.terminated, [w[1] for w in wanted])
    seen = np.asarray(step.observation[GROUP])
    flat = np.asarray(after.place) @ [7, 1]
    np.testing.assert_array_equal(seen[:, 1, :21].argmax(-1), flat[:, 1])  # itself first
    np.testing.assert_array_equal(seen[:, 1, 21:42].argmax(-1), flat[:, 0])
    at = [[[MAP[r][c] == "n", MAP[r][c] == "f"] for r, c in w[0]] for w in wanted]
    np.testing.assert_array_equal(seen[:, :, list(MARKS)], at)


def solutions(start, second=range(5)):
    """Of all ways to play a shortest one that ends, by breadth first; the second agent does what is in ``second``."""
    ways, seen = [(start, ())], {start}
    while ways:
        found = []
        for places, way in ways:
            for actions in itertools.product(range(5), second):
                after, over = told(places, actions)
                if over:
                    return (*way, actions)
                if after not in seen:
                    seen.add(after)
                    found.append((after, (*way, actions)))
        ways = found
    return None


def test_it_takes_both_and_a_shortest_way_is_paid_once_at_its_end():
    """By hand: the second one is at the far switch in 5 steps, the first one, who waits by then, through in 2 more."""
    start = (0, 0), (1, 2)
    way = solutions(start)
    assert len(way) == 7
    state, paid = Rooms(jnp.array(start, "int32"), jnp.zeros((), "int32")), []
    for actions in way:
        state, step = WORLD.step(state, {GROUP: jnp.array(actions, "int32")}, jax.random.key(0))
        paid.append(float(step.reward))
    assert paid == [0.0] * (len(way) - 1) + [1.0]
    assert solutions(start, second=(0,)) is None and solutions(((1, 2), (0, 0)), second=(0,)) is None


def test_it_keeps_the_laws():
    check_environment(WORLD)
