"""Warehouse: motion, collisions and traffic, against NumPy (small straight steps, point clouds, bouncing points)."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.components import check_environment
from thespis.papers.rnd_ppo_for_agv.envs import Warehouse, WarehouseState, arc_endpoint

ENV = Warehouse()
KEY = jax.random.key(0)
RNG = np.random.default_rng(0)


def state_at(position, heading=0.0, phase=(0.0, 0.0), time=0, goal=0):
    position, heading, phase = (jnp.asarray(x, "float32") for x in (position, heading, phase))
    return WarehouseState(position, heading, phase, jnp.int32(time), jnp.int32(goal))


step = jax.jit(lambda state, action: ENV.step(state, action, KEY))


def reference_endpoint(position, heading, length, angle, pieces=10_000):
    """End point of an arc, approximated by many straight pieces."""
    directions = heading + angle * (np.arange(pieces) + 0.5) / pieces
    return position + length / pieces * np.array([np.cos(directions).sum(), np.sin(directions).sum()])


def test_arc_endpoint_matches_small_straight_steps():
    for angle in (0.0, 1e-4, -0.6, 0.6, 3.0):
        position, heading, length = RNG.uniform(0, 8, 2), RNG.uniform(-3, 3), RNG.uniform(0.1, 2)
        arguments = (jnp.asarray(x, "float32") for x in (position, heading, length, angle))
        np.testing.assert_allclose(
            arc_endpoint(*arguments), reference_endpoint(position, heading, length, angle), atol=1e-4
        )


def test_actions_set_speed_and_turn():
    for first, second in [(-1.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, -0.5), (9.0, -9.0)]:
        state, _ = step(state_at((4.0, 2.8), 0.3, (0.5, 0.0)), jnp.array([first, second]))
        length, angle = 0.25 * (np.clip(first, -1, 1) + 1), 0.6 * np.clip(second, -1, 1)
        np.testing.assert_allclose(
            state.position, reference_endpoint(np.array([4.0, 2.8]), 0.3, length, angle), atol=1e-4
        )
        assert state.heading == pytest.approx(0.3 + angle, abs=1e-5) and state.time == 1
    state, _ = step(state_at((4.0, 2.8), 3.0), jnp.array([-1.0, 1.0]))
    assert state.heading == pytest.approx(3.6 - 2 * np.pi, abs=1e-5)


def test_blocked_positions_overlap_shelves_or_walls():
    """A disc overlaps a shelf if it contains one of many points of the shelf, and a wall if it leaves the square."""
    env = Warehouse(shelves=((0.0, 2.0, 6.0, 3.0), (2.0, 5.0, 8.0, 6.0)))
    grid = np.arange(0, 8, 0.02) + 0.01
    points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    inside = np.zeros(len(points), bool)
    for left, low, right, high in env.shelves:
        inside |= (points > (left, low)).all(1) & (points < (right, high)).all(1)
    shelf, positions = points[inside], RNG.uniform(-0.5, 8.5, (400, 2)).astype("float32")
    blocked = np.asarray(jax.vmap(env.is_blocked)(jnp.asarray(positions)))
    shelf_distance = np.array([np.linalg.norm(shelf - position, axis=1).min() for position in positions])
    wall_distance = np.minimum(positions, 8 - positions).min(1)
    unambiguous = (np.abs(shelf_distance - 0.25) > 0.02) & (
        np.abs(wall_distance - 0.25) > 1e-4
    )  # points are 0.02 apart
    assert unambiguous.sum() > 350 and 100 < blocked.sum() < 300
    np.testing.assert_array_equal(blocked[unambiguous], ((shelf_distance < 0.25) | (wall_distance < 0.25))[unambiguous])


def test_blocked_vehicle_only_turns():
    state, timestep = step(state_at((5.0, 3.2), np.pi / 2), jnp.array([1.0, 1.0]))
    np.testing.assert_allclose(state.position, (5.0, 3.2), atol=1e-6)
    assert state.heading == pytest.approx(np.pi / 2 + 0.6, abs=1e-5) and not timestep.terminated


def test_traffic_moves_back_and_forth():
    state = state_at((7.0, 3.0), 0.0)
    (start, end), positions, velocities = ((4.0, 0.4), (4.0, 2.2)), [], []
    for _ in range(45):
        state, timestep = step(state, jnp.array([-1.0, 0.0]))
        position, velocity = ENV.mover_states(state.mover_phases)
        positions.append(np.asarray(position[0]))
        velocities.append(np.asarray(velocity[0]))
        obs = np.asarray(timestep.observation)
        np.testing.assert_allclose(obs[4:6], (positions[-1] - (7.0, 3.0)) / 4, atol=1e-5)
        np.testing.assert_allclose(obs[6:8], velocities[-1] / 0.5, atol=1e-5)
        np.testing.assert_allclose(obs[:4], (0.75, -0.25, 1.0, 0.0), atol=1e-5)
    expected, direction = np.array(start), 1
    for position, velocity in zip(positions, velocities, strict=True):  # bounces between the two ends
        expected = expected + direction * 0.18 * np.array([0, 1])
        np.testing.assert_allclose(position, expected, atol=1e-3)
        direction = -1 if expected[1] > end[1] - 0.01 else 1 if expected[1] < start[1] + 0.01 else direction
        assert velocity[1] == pytest.approx(direction * 0.18, abs=1e-5)


@pytest.mark.parametrize(
    ("position", "phase", "terminated", "reward"),
    [
        ((4.0, 1.0), 0.15, True, 0.0),  # the other vehicle reaches 0.4 + 2 * 0.2 * 1.8 = 1.12
        ((4.0, 2.8), 0.15, False, 0.0),
        ((1.5, 6.5), 0.0, True, 1.0),
        ((1.9, 6.9), 0.0, False, 0.0),
    ],
)
def test_how_episodes_end(position, phase, terminated, reward):
    _, timestep = step(state_at(position, 0.0, (phase, 0.9), 3), jnp.array([-1.0, 0.0]))
    assert (bool(timestep.terminated), float(timestep.reward), bool(timestep.truncated)) == (terminated, reward, False)


def test_time_limit_truncates():
    last_step, step_before = (step(state_at((1.0, 1.0), time=t), jnp.array([-1.0, 0.0]))[1] for t in (149, 148))
    assert last_step.truncated and not last_step.terminated and not step_before.truncated


def test_goal_can_be_reached():
    """Along the lower aisle, around the shelf and back, between the other vehicles."""
    state, _ = ENV.reset((), KEY)
    for target in [(2.0, 2.98), (6.5, 2.98), (7.2, 4.0), (6.0, 7.3), (1.5, 7.3)]:
        while np.linalg.norm(np.array(target) - state.position) > 0.3:
            turn = np.arctan2(*(np.array(target) - state.position)[::-1]) - float(state.heading)
            turn = (turn + np.pi) % (2 * np.pi) - np.pi
            speed = -1.0 if abs(turn) > 0.6 else 1.0
            state, timestep = step(state, jnp.array([speed, np.clip(turn / 0.6, -1, 1)]))
            if timestep.terminated | timestep.truncated:
                break
    assert float(timestep.reward) == 1.0 and state.time < 80


def test_contract():
    check_environment(Warehouse(time_limit=6))


def test_empty_warehouse_observes_no_other_vehicles():
    empty = Warehouse(shelves=(), mover_paths=())
    state, first = empty.reset((), KEY)
    after, timestep = jax.jit(empty.step)(state, jnp.zeros(2), KEY)
    assert first.observation.shape == timestep.observation.shape == (4,) and not timestep.terminated
    assert np.linalg.norm(after.position - state.position) == pytest.approx(0.25, abs=1e-4)


def test_an_episode_has_one_of_several_goals():
    """Only its own goal pays; which one it is is observed, and all are drawn equally often."""
    env = Warehouse(other_goals=((7.0, 1.0),), mover_paths=())
    rest = jax.jit(lambda state: env.step(state, jnp.array([-1.0, 0.0]), KEY)[1])
    for goal, position in enumerate(env.goals):
        for own in (0, 1):
            timestep = rest(dataclasses.replace(state_at(position, goal=own), mover_phases=jnp.zeros(0)))
            assert bool(timestep.terminated) == (goal == own) == bool(timestep.reward)
            assert timestep.observation[4:].tolist() == [own == 0, own == 1]
    goals = jax.vmap(lambda key: env.reset((), key)[0].goal)(jax.random.split(KEY, 2_000))
    assert np.bincount(goals).tolist() == pytest.approx([1_000, 1_000], abs=100)
    check_environment(dataclasses.replace(env, time_limit=6))


def test_other_goals_change_no_start():
    both = (Warehouse(), Warehouse(other_goals=((7.0, 1.0),)))
    alone, several = (env.reset((), KEY)[0] for env in both)
    np.testing.assert_array_equal(alone.position, several.position)
    np.testing.assert_array_equal(alone.mover_phases, several.mover_phases)
