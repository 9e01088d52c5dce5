"""The warehouse against numpy: arcs in ten thousand small steps, shelves as clouds of points, traffic that bounces."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.conformance import check_environment
from thespis.envs.compiled.warehouse import Drive, Warehouse, arc

WORLD = Warehouse()
KEY = jax.random.key(0)
RNG = np.random.default_rng(0)


def at(place, heading=0.0, phase=(0.0, 0.0), time=0):
    place, heading, phase = (jnp.asarray(x, "float32") for x in (place, heading, phase))
    return Drive(place, heading, phase, jnp.int32(time))


step = jax.jit(lambda state, action: WORLD.step(state, action, KEY))


def driven(place, heading, length, angle, pieces=10_000):
    """By straight pieces, each turned a little."""
    directions = heading + angle * (np.arange(pieces) + 0.5) / pieces
    return place + length / pieces * np.array([np.cos(directions).sum(), np.sin(directions).sum()])


def test_arcs_are_many_small_straight_pieces():
    for angle in (0.0, 1e-4, -0.6, 0.6, 3.0):
        place, heading, length = RNG.uniform(0, 8, 2), RNG.uniform(-3, 3), RNG.uniform(0.1, 2)
        given = (jnp.asarray(x, "float32") for x in (place, heading, length, angle))
        np.testing.assert_allclose(arc(*given), driven(place, heading, length, angle), atol=1e-4)


def test_actions_are_speed_and_turn():
    for first, second in [(-1.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, -0.5), (9.0, -9.0)]:
        state, _ = step(at((4.0, 2.8), 0.3, (0.5, 0.0)), jnp.array([first, second]))
        length, angle = 0.25 * (np.clip(first, -1, 1) + 1), 0.6 * np.clip(second, -1, 1)
        np.testing.assert_allclose(state.place, driven(np.array([4.0, 2.8]), 0.3, length, angle), atol=1e-4)
        assert state.heading == pytest.approx(0.3 + angle, abs=1e-5) and state.time == 1
    state, _ = step(at((4.0, 2.8), 3.0), jnp.array([-1.0, 1.0]))
    assert state.heading == pytest.approx(3.6 - 2 * np.pi, abs=1e-5)


def test_what_blocks_is_what_overlaps():
    """A disc stands in a shelf if one of many points of the shelf lies in it, and in a wall if it leaves the square."""
    world = Warehouse(shelves=((0.0, 2.0, 6.0, 3.0), (2.0, 5.0, 8.0, 6.0)))
    grid = np.arange(0, 8, 0.02) + 0.01
    points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    inside = np.zeros(len(points), bool)
    for left, low, right, high in world.shelves:
        inside |= (points > (left, low)).all(1) & (points < (right, high)).all(1)
    shelf, places = points[inside], RNG.uniform(-0.5, 8.5, (400, 2)).astype("float32")
    blocked = np.asarray(jax.vmap(world.blocked)(jnp.asarray(places)))
    near = np.array([np.linalg.norm(shelf - place, axis=1).min() for place in places])
    edge = np.minimum(places, 8 - places).min(1)
    clear = (np.abs(near - 0.25) > 0.02) & (np.abs(edge - 0.25) > 1e-4)  # points stand 0.02 apart
    assert clear.sum() > 350 and 100 < blocked.sum() < 300
    np.testing.assert_array_equal(blocked[clear], ((near < 0.25) | (edge < 0.25))[clear])


def test_a_blocked_vehicle_stands_and_turns():
    state, answer = step(at((5.0, 3.2), np.pi / 2), jnp.array([1.0, 1.0]))
    np.testing.assert_allclose(state.place, (5.0, 3.2), atol=1e-6)
    assert state.heading == pytest.approx(np.pi / 2 + 0.6, abs=1e-5) and not answer.terminated


def test_traffic_drives_to_and_fro():
    state = at((7.0, 3.0), 0.0)
    (begin, end), places, velocities = ((4.0, 0.4), (4.0, 2.2)), [], []
    for _ in range(45):
        state, answer = step(state, jnp.array([-1.0, 0.0]))
        place, velocity = WORLD.others(state.phase)
        places.append(np.asarray(place[0]))
        velocities.append(np.asarray(velocity[0]))
        seen = np.asarray(answer.observation)
        np.testing.assert_allclose(seen[4:6], (places[-1] - (7.0, 3.0)) / 4, atol=1e-5)
        np.testing.assert_allclose(seen[6:8], velocities[-1] / 0.5, atol=1e-5)
        np.testing.assert_allclose(seen[:4], (0.75, -0.25, 1.0, 0.0), atol=1e-5)
    spot, way = np.array(begin), 1
    for place, velocity in zip(places, velocities, strict=True):  # bounce between the two ends
        spot = spot + way * 0.18 * np.array([0, 1])
        np.testing.assert_allclose(place, spot, atol=1e-3)
        way = -1 if spot[1] > end[1] - 0.01 else 1 if spot[1] < begin[1] + 0.01 else way
        assert velocity[1] == pytest.approx(way * 0.18, abs=1e-5)


@pytest.mark.parametrize(("place", "phase", "over", "paid"), [
    ((4.0, 1.0), 0.15, True, 0.0),  # the other comes to 0.4 + 2 * 0.2 * 1.8 = 1.12
    ((4.0, 2.8), 0.15, False, 0.0),
    ((1.5, 6.5), 0.0, True, 1.0),
    ((1.9, 6.9), 0.0, False, 0.0),
])  # fmt: skip
def test_how_episodes_end(place, phase, over, paid):
    _, answer = step(at(place, 0.0, (phase, 0.9), 3), jnp.array([-1.0, 0.0]))
    assert (bool(answer.terminated), float(answer.reward), bool(answer.truncated)) == (over, paid, False)


def test_time_runs_out():
    last, before = (step(at((1.0, 1.0), time=t), jnp.array([-1.0, 0.0]))[1] for t in (149, 148))
    assert last.truncated and not last.terminated and not before.truncated


def test_there_is_a_way():
    """Along the lower aisle, round the shelf and back, through the lanes that traffic leaves."""
    state, _ = WORLD.reset((), KEY)
    for target in [(2.0, 2.98), (6.5, 2.98), (7.2, 4.0), (6.0, 7.3), (1.5, 7.3)]:
        while np.linalg.norm(np.array(target) - state.place) > 0.3:
            wanted = np.arctan2(*(np.array(target) - state.place)[::-1]) - float(state.heading)
            wanted = (wanted + np.pi) % (2 * np.pi) - np.pi
            speed = -1.0 if abs(wanted) > 0.6 else 1.0
            state, answer = step(state, jnp.array([speed, np.clip(wanted / 0.6, -1, 1)]))
            if answer.terminated | answer.truncated:
                break
    assert float(answer.reward) == 1.0 and state.time < 80


def test_it_keeps_the_laws():
    check_environment(Warehouse(limit=6))


def test_an_empty_hall_has_no_others():
    empty = Warehouse(shelves=(), ways=())
    state, first = empty.reset((), KEY)
    after, answer = jax.jit(empty.step)(state, jnp.zeros(2), KEY)
    assert first.observation.shape == answer.observation.shape == (4,) and not answer.terminated
    assert np.linalg.norm(after.place - state.place) == pytest.approx(0.25, abs=1e-4)
