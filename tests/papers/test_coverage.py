"""Coverage environments: set functions against brute force and NumPy, and optimal paths against exhaustive search."""

from __future__ import annotations

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.components import check_environment
from thespis.envs.registry import make_compiled
from thespis.papers.gmah.envs import MOVES
from thespis.papers.subpo.envs import (
    ADDITIVE_COVERAGE,
    INFORMATION_COVERAGE,
    OBSERVED_COVERAGE,
    SLIPPERY_COVERAGE,
    Coverage,
    InformationGain,
    WeightedCoverage,
)
from thespis.papers.subpo.paper import GREEDY_VALUE

SIDE = 5


def covered_weight(weights, positions, reach=1):
    """The weight of all cells visible from ``positions``."""
    side = len(weights)
    visible = {
        (r + i, c + j)
        for r, c in positions
        for i, j in itertools.product(range(reach + 1), repeat=2)
        if r + i < side and c + j < side
    }
    return sum(weights[cell] for cell in visible)


def information(weights, positions, length=1.0, noise=0.5):
    """Information gain of measurements at ``positions``, as one log-determinant."""
    x = np.array(positions, float)
    squared_distances = ((x[:, None] - x[None]) ** 2).sum(-1)
    w = np.array([weights[tuple(position)] for position in positions])
    kernel = np.sqrt(np.outer(w, w)) * np.exp(-squared_distances / (2 * length**2))
    return np.linalg.slogdet(np.eye(len(positions)) + kernel / noise**2)[1] / 2


def path(actions, side=SIDE):
    """Positions from the corner on."""
    positions = [(0, 0)]
    for action in actions:
        positions.append(tuple(np.clip(np.add(positions[-1], MOVES[action]), 0, side - 1)))
    return positions


def rollout(env, actions):
    def step(state, action):
        state, timestep = env.step(state, action, jax.random.key(0))
        return state, timestep

    state, _ = env.reset((), jax.random.key(0))
    return jax.jit(lambda s, a: jax.lax.scan(step, s, a)[1])(state, jnp.array(actions))


KINDS = pytest.mark.parametrize(
    ("objective", "reference_value"), [(WeightedCoverage(), covered_weight), (InformationGain(), information)]
)


@KINDS
def test_rewards_sum_to_the_value_of_the_path(objective, reference_value):
    env = Coverage(objective, grid_size=SIDE, horizon=12)
    weights, rng = np.asarray(env.weights, float), np.random.default_rng(0)
    for _ in range(3):
        actions = rng.integers(0, 5, 12)
        timesteps = rollout(env, actions)
        positions = path(actions)
        expected = [
            reference_value(weights, positions[: i + 2]) - reference_value(weights, positions[: i + 1])
            for i in range(12)
        ]
        np.testing.assert_allclose(timesteps.reward, expected, atol=1e-5)
        assert timesteps.reward.sum() == pytest.approx(
            reference_value(weights, positions) - reference_value(weights, positions[:1]), abs=1e-4
        )
        assert timesteps.terminated.tolist() == [False] * 11 + [True] and not timesteps.truncated.any()
        additive = rollout(dataclasses.replace(env, additive_reward=True), actions)
        np.testing.assert_allclose(
            additive.reward, [reference_value(weights, [position]) for position in positions[1:]], atol=1e-5
        )


@KINDS
def test_objectives_are_monotone_and_submodular(objective, reference_value):
    """On random sets: a position adds at least as much to a subset as to the whole set."""
    weights, rng = np.asarray(Coverage(grid_size=SIDE).weights, float), np.random.default_rng(1)

    def gain(positions, new_position):
        state = objective.init(jnp.asarray(weights, "float32"))
        for position in positions:
            state = objective.add_position(state, jnp.array(position))[1]
        return float(objective.add_position(state, jnp.array(new_position))[0])

    for _ in range(20):
        positions = [tuple(position) for position in rng.integers(0, SIDE, (5, 2))]
        subset, new_position = positions[: rng.integers(1, 5)], tuple(rng.integers(0, SIDE, 2))
        gain_of_subset, gain_of_all = gain(subset, new_position), gain(positions, new_position)
        assert gain_of_subset >= gain_of_all - 1e-5 and gain_of_all >= -1e-5
        assert gain_of_all == pytest.approx(
            reference_value(weights, [*positions, new_position]) - reference_value(weights, positions), abs=1e-4
        )


def max_coverage(weights, side, steps):
    """The largest weight that a path of ``steps`` covers besides its start, by search over positions and cells."""
    frontier = {((0, 0), frozenset({(0, 0), (0, 1), (1, 0), (1, 1)}))}
    for _ in range(steps):
        frontier = {
            (
                position,
                cells
                | {
                    (position[0] + i, position[1] + j)
                    for i in (0, 1)
                    for j in (0, 1)
                    if position[0] + i < side and position[1] + j < side
                },
            )
            for (r, c), cells in frontier
            for position in {tuple(int(x) for x in np.clip((r + i, c + j), 0, side - 1)) for i, j in MOVES}
        }
    start = weights[:2, :2].sum()
    return max(sum(weights[cell] for cell in cells) for _, cells in frontier) - start


def test_search_matches_enumeration_of_all_paths():
    """Every sequence of moves is enumerated; with equal weights a step uncovers at most two cells."""
    env = Coverage(grid_size=3, horizon=4)
    weights = np.asarray(env.weights, float)
    paths = [path(actions, 3) for actions in itertools.product(range(5), repeat=4)]
    expected = max(covered_weight(weights, positions) for positions in paths) - weights[:2, :2].sum()
    assert max_coverage(weights, 3, 4) == pytest.approx(expected, abs=1e-6)
    assert max_coverage(np.ones((6, 6)), 6, 4) == 8.0


def test_observation_has_position_time_and_remaining_values():
    timesteps = rollout(dataclasses.replace(OBSERVED_COVERAGE, slip_prob=0.0), np.array([2, 4, 0]))
    obs = np.asarray(timesteps.observation)
    assert obs[:, :8].argmax(1).tolist() == [0, 1, 1] and obs[:, 8:16].argmax(1).tolist() == [1, 1, 1]
    assert obs[:, 16:36].argmax(1).tolist() == [1, 2, 3]
    remaining = obs[:, 36:].reshape(3, 8, 8)
    assert remaining[0, 0, :3].tolist() == [0, 0, 0] and remaining[0, 2, 1] == 1 and remaining[1, 2, 1] == 0
    assert timesteps.reward[2] == 0
    variance = np.asarray(
        InformationGain().remaining_value(
            InformationGain().add_position(InformationGain().init(jnp.ones((2, 2))), jnp.array([0, 0]))[1]
        )
    )
    np.testing.assert_allclose(variance, 1 - np.exp([0, -1, -1, -2]) / 1.25, atol=1e-6)


def test_one_move_in_ten_is_random():
    env, keys = SLIPPERY_COVERAGE, jax.random.split(jax.random.key(1), 4_000)
    state, _ = env.reset((), keys[0])
    positions = jax.jit(jax.vmap(lambda key: env.step(state, jnp.int32(2), key)[0].position))(keys)
    assert np.mean(np.asarray(positions)[:, 1] == 1) == pytest.approx(0.9 + 0.1 / 5, abs=0.02)


@pytest.mark.parametrize(
    "env",
    [
        SLIPPERY_COVERAGE,
        pytest.param(INFORMATION_COVERAGE, marks=pytest.mark.slow),
        pytest.param(OBSERVED_COVERAGE, marks=pytest.mark.slow),
    ],
)
def test_contract(env):
    check_environment(env)


def test_registry_name():
    assert make_compiled("thespis.papers.subpo.envs:ADDITIVE_COVERAGE") == ADDITIVE_COVERAGE


@pytest.mark.slow
def test_greedy_planner_reaches_the_value_that_the_remarks_name():
    """Its mean coverage, with random tie-breaking, is that of the remarks, and far below the total weight."""
    weights, rng = np.asarray(SLIPPERY_COVERAGE.weights, float), np.random.default_rng(0)

    def greedy_coverage():
        positions: list[tuple[int, ...]] = [(0, 0)]
        for _ in range(SLIPPERY_COVERAGE.horizon):
            neighbors = [tuple(int(x) for x in np.clip(np.add(positions[-1], move), 0, 7)) for move in MOVES]
            values = np.round([covered_weight(weights, [*positions, position]) for position in neighbors], 9)
            greedy_action = int(rng.choice(np.flatnonzero(values == values.max())))
            positions.append(
                neighbors[rng.integers(5) if rng.random() < SLIPPERY_COVERAGE.slip_prob else greedy_action]
            )
        return covered_weight(weights, positions) - weights[:2, :2].sum()

    coverage = np.array([greedy_coverage() for _ in range(1_500)])
    assert coverage.mean() == pytest.approx(GREEDY_VALUE, abs=0.2)
    assert weights.sum() - weights[:2, :2].sum() > coverage.mean() + 5
