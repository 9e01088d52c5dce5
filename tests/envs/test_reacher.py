"""Reacher: kinematics, dynamics, rewards and noise, against complex numbers, SciPy and the law of cosines."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from thespis.core.laws.components import check_environment
from thespis.envs.compiled.reacher import (
    ACTION_COST,
    FRICTION,
    LINK_LENGTH,
    MAX_ACCELERATION,
    Reacher,
    ReacherState,
    fingertip_position,
)
from thespis.envs.registry import make_compiled, resolve_env


def state_at(angle, velocity, goal=(0.3, 0.4)):
    return ReacherState(*(jnp.asarray(x, "float32") for x in (angle, velocity, goal)), jnp.int32(0))


@eqx.filter_jit
def jitted_step(env, state, action, key):
    return env.step(state, action, key)


def step(env, state, action, seed=0):
    return jitted_step(env, state, jnp.asarray(action, "float32"), jax.random.key(seed))


@pytest.mark.long
def test_contract():
    check_environment(
        Reacher(num_dummy_actions=3, sparse_reward=True, action_noise_std=0.2, time_limit=7), num_steps=20
    )


@pytest.mark.slow
def test_contract_with_defaults():
    check_environment(Reacher())


def test_registry_name():
    name = "thespis.envs.compiled.reacher:Reacher"
    assert resolve_env(name).kind == "compiled" and make_compiled(name) == Reacher()


def test_fingertip_position_matches_complex_numbers():
    for a, b in np.random.default_rng(0).uniform(-4, 4, (20, 2)):
        expected = LINK_LENGTH * (np.exp(1j * a) + np.exp(1j * (a + b)))
        np.testing.assert_allclose(fingertip_position(jnp.array([a, b])), [expected.real, expected.imag], atol=1e-6)
        assert np.linalg.norm(fingertip_position(jnp.array([a, b]))) == pytest.approx(
            2 * LINK_LENGTH * abs(np.cos(b / 2)), abs=1e-6
        )


def test_motion_matches_scipy():
    rng, state = np.random.default_rng(0), state_at([0.3, -2.0], [1.0, -4.0])
    expected = np.array([0.3, -2.0, 1.0, -4.0])
    for action in rng.uniform(-1.5, 1.5, (30, 2)):
        state, _ = step(Reacher(), state, action)
        acceleration = MAX_ACCELERATION * np.clip(action, -1, 1)
        slope = lambda _, x, acceleration=acceleration: [*x[2:], *(acceleration - FRICTION * x[2:])]  # noqa: E731
        expected = solve_ivp(slope, (0, 0.05), expected, rtol=1e-9, atol=1e-9).y[:, -1]
        np.testing.assert_allclose([*state.joint_angles, *state.joint_velocities], expected, atol=2e-5)


def test_closed_form_pose_reaches_the_goal():
    """The elbow angle follows from the distance of the goal (law of cosines), the shoulder angle from its direction."""
    for seed in range(5):
        state, _ = Reacher().reset((), jax.random.key(seed))
        distance = float(jnp.linalg.norm(state.goal))
        elbow = np.pi - np.arccos(1 - distance**2 / (2 * LINK_LENGTH**2))
        shoulder = np.arctan2(*np.asarray(state.goal)[::-1]) - elbow / 2
        _, timestep = step(Reacher(), state_at([shoulder, elbow], [0.0, 0.0], state.goal), [0.0, 0.0])
        assert timestep.reward == pytest.approx(0.0, abs=1e-5)
        np.testing.assert_allclose(timestep.observation[-2:], 0.0, atol=1e-5)
        assert (
            step(Reacher(sparse_reward=True), state_at([shoulder, elbow], [0.0, 0.0], state.goal), [0.0, 0.0])[1].reward
            == 1.0
        )


def test_rewards_of_known_states():
    at_rest = state_at([0.0, np.pi / 2], [0.0, 0.0], (0.5, 0.38))  # the fingertip is at (0.5, 0.5)
    assert step(Reacher(), at_rest, [0.0, 0.0])[1].reward == pytest.approx(-0.12, abs=1e-6)
    assert [
        float(step(Reacher(sparse_reward=True, goal_radius=r), at_rest, [0.0, 0.0])[1].reward) for r in (0.11, 0.13)
    ] == [0.0, 1.0]
    next_state, timestep = step(Reacher(num_dummy_actions=1), at_rest, [1.0, -0.5, 1.0])
    distance = np.linalg.norm(np.array([0.5, 0.38]) - np.asarray(fingertip_position(next_state.joint_angles)))
    assert timestep.reward == pytest.approx(-distance - ACTION_COST * 1.25, abs=1e-6)
    np.testing.assert_allclose(timestep.observation[4:6], np.asarray(next_state.joint_velocities) / 5, rtol=1e-6)


def test_dummy_actions_have_no_effect_and_noise_has_the_stated_size():
    state, env = state_at([0.1, 0.2], [0.3, 0.4]), Reacher(num_dummy_actions=2)
    result, expected = (step(env, state, [0.5, -0.5, x, -x]) for x in (0.0, 1.0))
    jax.tree.map(np.testing.assert_array_equal, result, expected)
    noisy = Reacher(action_noise_std=0.3)
    velocities = np.array([step(noisy, state, [0.0, 0.0], seed)[0].joint_velocities for seed in range(300)])
    gain = (1 - np.exp(-FRICTION * 0.05)) * MAX_ACCELERATION / FRICTION
    np.testing.assert_allclose(velocities.std(0), 0.3 * gain, rtol=0.12)
    np.testing.assert_allclose(velocities.mean(0), np.array([0.3, 0.4]) * np.exp(-0.1), atol=0.03)


@pytest.mark.long
def test_random_episodes():
    env = Reacher(time_limit=20)

    def play(key):
        state, first = env.reset((), key)
        actions = jax.random.uniform(key, (20, 2), minval=-1)
        return first, state.goal, jax.lax.scan(lambda s, a: env.step(s, a, key), state, actions)[1]

    first, goal, steps = jax.jit(jax.vmap(play))(jax.random.split(jax.random.key(0), 64))
    distance = np.linalg.norm(goal, axis=1)
    assert 0.2 <= distance.min() < 0.3 and 0.8 < distance.max() <= 0.9
    assert len(np.unique(goal, axis=0)) == 64 and len(np.unique(np.sign(goal), axis=0)) == 4
    np.testing.assert_allclose(first.observation[:, 4:6], 0.0)
    np.testing.assert_allclose((steps.observation[..., :4] ** 2).sum(-1), 2.0, atol=1e-5)
    assert np.abs(steps.observation[..., 4:6]).max() <= 1.0
    assert not steps.terminated.any() and steps.truncated.tolist() == [[False] * 19 + [True]] * 64
