"""T-maze: steps against a reference, and optimal values with and without memory against closed forms."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.components import check_environment
from thespis.papers.rtrl_actor_critic.envs import EAST, NORTH, SOUTH, WEST, TMaze, TMazeState

LENGTH = 4
ENV = TMaze(LENGTH, time_limit=12)
OBSERVATIONS = {"start-north": (0, 1, 1), "start-south": (1, 1, 0), "corridor": (1, 0, 1), "end": (0, 1, 0)}


def reference_step(position, action, north):
    """Reference step: the next position (``None``: out of the maze) and the reward."""
    if position == LENGTH and action in (NORTH, SOUTH):
        return None, 4.0 if action == (NORTH if north else SOUTH) else -0.1
    can_move = {EAST: position < LENGTH, WEST: position > 0}.get(action, False)
    return (position + (1 if action == EAST else -1), 0.0) if can_move else (position, -0.1)


def observation_name(position, north):
    return f"start-{'north' if north else 'south'}" if position == 0 else "end" if position == LENGTH else "corridor"


def test_every_step_matches_the_reference():
    cases = list(itertools.product(range(LENGTH + 1), range(4), (True, False)))
    position, action, north = (np.array(x) for x in zip(*cases, strict=True))

    def step_from(position, action, north):
        return ENV.step(TMazeState(position, jnp.zeros((), "int32"), north), action, jax.random.key(0))

    after, step = jax.jit(jax.vmap(step_from))(position.astype("int32"), action.astype("int32"), north)
    for i, (start, direction, goal_north) in enumerate(cases):
        expected, reward = reference_step(start, direction, goal_north)
        assert (bool(step.terminated[i]), float(step.reward[i])) == (expected is None, pytest.approx(reward)), cases[i]
        if expected is not None:
            assert after.position[i] == expected and after.time[i] == 1
            assert tuple(step.observation[i]) == OBSERVATIONS[observation_name(expected, goal_north)], cases[i]


def value(acts, north, discount):
    """The return of the memoryless policy ``acts`` (observation to action), by the reference."""
    position, total = 0, 0.0
    for t in range(ENV.time_limit):
        position, reward = reference_step(position, acts[observation_name(position, north)], north)
        total += discount**t * reward
        if position is None:
            break
    return total


def episode_return(acts, north):
    """The undiscounted return and the length of the same policy in the environment."""
    state = TMazeState(jnp.zeros((), "int32"), jnp.zeros((), "int32"), jnp.asarray(north))
    position, total, ended = 0, 0.0, False
    step = jax.jit(ENV.step)
    while not ended:
        state, timestep = step(state, jnp.int32(acts[observation_name(position, north)]), jax.random.key(0))
        position, total = int(state.position), total + float(timestep.reward)
        ended = bool(timestep.terminated | timestep.truncated)
    return total, int(state.time)


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_optimal_values_with_and_without_memory(discount):
    policies = [dict(zip(OBSERVATIONS, acts, strict=True)) for acts in itertools.product(range(4), repeat=4)]
    memoryless = max(np.mean([value(acts, north, discount) for north in (True, False)]) for acts in policies)
    assert memoryless == pytest.approx(discount**LENGTH * (4 - 0.1) / 2)
    positions = range(LENGTH + 1)
    best = functools.reduce(  # value iteration over positions, for an agent that remembers the sign
        lambda v, _: [
            max(
                p + (0 if next_position is None else discount * v[next_position])
                for next_position, p in (reference_step(x, a, True) for a in range(4))
            )
            for x in positions
        ],
        range(50),
        [0.0] * (LENGTH + 1),
    )
    assert best[0] == pytest.approx(discount**LENGTH * 4)


def test_returns_of_whole_episodes():
    east = dict.fromkeys(OBSERVATIONS, EAST)
    assert episode_return(east | {"end": NORTH}, True) == (pytest.approx(4.0), LENGTH + 1)
    assert episode_return(east | {"end": NORTH}, False) == (pytest.approx(-0.1), LENGTH + 1)
    assert episode_return(east, True) == (pytest.approx(-0.1 * (12 - LENGTH)), 12)


def test_goals_are_equally_likely_and_noise_is_limited_to_the_corridor():
    env = TMaze(LENGTH, noisy=True)
    keys = jax.random.split(jax.random.key(0), 500)
    state, first = jax.jit(jax.vmap(lambda key: env.reset((), key)))(keys)
    assert 0.4 < np.mean(state.goal_north) < 0.6
    np.testing.assert_array_equal(first.observation[:, 2], state.goal_north)
    step = jax.jit(jax.vmap(env.step, (0, None, 0)))
    observations = []
    for _ in range(LENGTH):
        state, timestep = step(state, jnp.int32(EAST), keys)
        observations.append(np.asarray(timestep.observation))
    corridor = np.concatenate(observations[:-1])
    assert not corridor[:, 1].any() and np.abs(corridor[:, [0, 2]].mean(0) - 0.5).max() < 0.05
    assert np.abs(np.corrcoef(corridor[:, 0], corridor[:, 2])[0, 1]) < 0.1 and corridor.std() > 0.2
    np.testing.assert_array_equal(observations[-1], np.tile(OBSERVATIONS["end"], (500, 1)))


def test_a_visible_goal_is_the_only_difference():
    hidden, visible = (TMaze(LENGTH, 12, noisy=True, goal_visible=visible) for visible in (False, True))
    for seed in range(4):
        key = jax.random.key(seed)
        (state, step), (visible_state, visible_step) = (env.reset((), key) for env in (hidden, visible))
        for action in (EAST, EAST, WEST, EAST, EAST, EAST, NORTH):
            assert visible_step.observation[:3].tolist() == step.observation.tolist()
            assert bool(visible_step.observation[3]) == bool(state.goal_north)
            assert (visible_step.reward, visible_step.terminated) == (step.reward, step.terminated)
            state, step = hidden.step(state, jnp.int32(action), key)
            visible_state, visible_step = visible.step(visible_state, jnp.int32(action), key)
        assert step.terminated


@pytest.mark.parametrize("visible", [False, True])
@pytest.mark.parametrize("noise", [False, True])
def test_contract(noise, visible):
    check_environment(TMaze(2, 6, noise, visible))
