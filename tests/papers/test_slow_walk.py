"""Slow walk and goal grid, against transition matrices and a reference implementation."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.components import check_environment
from thespis.papers.mac.envs import MOVES, GoalGrid, GoalGridState, SlowWalk, SlowWalkState

KEY = jax.random.key(0)


def transition_matrix(env, right):
    """Transition matrix, in double precision, of the policy that goes right with probability ``right``."""
    n, p = (
        env.num_positions,
        right * (1 + env.control_strength) / 2 + (1 - right) * (1 - env.control_strength) / 2,
    )
    matrix = env.stay_prob * np.eye(n)
    for i in range(n):
        matrix[i, min(i + 1, n - 1)] += (1 - env.stay_prob) * p
        matrix[i, max(i - 1, 0)] += (1 - env.stay_prob) * (1 - p)
    return matrix


@pytest.mark.parametrize("right", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("env", [SlowWalk(), SlowWalk(num_positions=6, stay_prob=0.6, control_strength=0.9)])
def test_relaxation_time_matches_the_second_eigenvalue(env, right):
    values = np.sort(np.abs(np.linalg.eigvals(transition_matrix(env, right))))
    assert values[-1] == pytest.approx(1.0)
    assert env.relaxation_time(right) == pytest.approx(1 / (1 - values[-2]))


def test_steps_match_the_transition_matrix():
    """20,000 steps from every position: frequencies within five standard deviations, and their rewards."""
    env, count = SlowWalk(num_positions=4, stay_prob=0.3, control_strength=0.5, small_reward=0.2), 20_000

    @jax.jit
    def steps(position, action):
        state = SlowWalkState(position, jnp.int32(0))
        after, step = jax.vmap(lambda key: env.step(state, action, key))(jax.random.split(KEY, count))
        return after.position, step.reward, step.observation

    for position, action in itertools.product(range(4), range(2)):
        after, reward, obs = steps(jnp.int32(position), jnp.int32(action))
        frequencies = np.bincount(after, minlength=4) / count
        expected = transition_matrix(env, float(action))[position]
        assert (np.abs(frequencies - expected) <= 5 * np.sqrt(expected * (1 - expected) / count)).all()
        np.testing.assert_allclose(reward, np.array([0.2, 0.0, 0.0, 1.0], "float32")[after])
        np.testing.assert_array_equal(np.asarray(obs).argmax(1), after)


def test_large_reward_is_worth_more_than_the_small_one():
    """Over an episode from the middle, by powers of the transition matrix."""
    env = SlowWalk()
    rewards = np.eye(env.num_positions)[0] * env.small_reward + np.eye(env.num_positions)[-1]
    returns = {}
    for right in (0.0, 0.5, 1.0):
        probs, total = np.eye(env.num_positions)[env.num_positions // 2], 0.0
        for _ in range(env.time_limit):
            probs = probs @ transition_matrix(env, right)
            total += probs @ rewards
        returns[right] = total
    assert returns[1.0] > 70 > 25 > returns[0.5] > returns[0.0] > 10
    assert env.relaxation_time(0.5) > 32 > env.relaxation_time(1.0) > 16  # longer than a trajectory of four levels


def test_every_step_of_the_goal_grid_matches_the_reference():
    n, env = 4, GoalGrid(grid_size=4)
    cells = list(itertools.product(range(n), range(n)))
    pairs = list(itertools.product(cells, range(len(MOVES))))
    positions, actions = np.array([c for c, _ in pairs], "int32"), np.array([a for _, a in pairs], "int32")
    after, step = jax.vmap(lambda p, a: env.step(GoalGridState(p, jnp.int32(0)), a, KEY))(positions, actions)
    offsets = {0: (0, 0), 1: (-1, 0), 2: (1, 0), 3: (0, -1), 4: (0, 1)}
    for (r, c), action, next_position, reward, obs in zip(
        [c for c, _ in pairs], actions, after.position, step.reward, step.observation, strict=True
    ):
        expected = r + offsets[int(action)][0], c + offsets[int(action)][1]
        expected = expected if set(expected) <= set(range(n)) else (r, c)
        assert tuple(np.asarray(next_position)) == expected
        assert float(reward) == (expected == (n - 1, n - 1))
        assert int(obs.argmax()) == cells.index(expected)
    assert not step.terminated.any()


@pytest.mark.parametrize("env", [SlowWalk(num_positions=5, time_limit=9), GoalGrid(grid_size=3, time_limit=9)])
def test_contract(env):
    check_environment(env)
