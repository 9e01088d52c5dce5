"""Planar quadrotor: its motion against SciPy, its reward by hand, observations, noise, ends and the strict return."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from thespis.core.laws.components import check_curriculum, check_environment
from thespis.curricula.annealing import hover_reward_annealing
from thespis.envs.registry import make_compiled
from thespis.papers.learning_to_fly.planar import (
    NO_HISTORY,
    NO_PRIVILEGED,
    PlanarQuadrotor,
    default_params,
    planar_reward,
    rk4_step,
)

KEY = jax.random.key(0)


@pytest.mark.parametrize("env", [PlanarQuadrotor(time_limit=7), NO_HISTORY, NO_PRIVILEGED])
def test_contract(env):
    check_environment(dataclasses.replace(env, time_limit=7), num_steps=20)


def test_the_reward_can_be_annealed():
    check_curriculum(hover_reward_annealing(), PlanarQuadrotor().spec)


def test_motion_is_that_of_a_rigid_body_with_two_lagging_rotors():
    """Forces and torque written from their positions: rotors at both ends of an arm, thrust along the body's axis."""
    params, rng = default_params(), np.random.default_rng(0)
    values = {f.name: float(getattr(params, f.name)) for f in dataclasses.fields(params) if f.name != "reward"}

    def slope(_, y, command, force):
        tilt, rotors = y[2], y[6:]
        axis = np.array([-np.sin(tilt), np.cos(tilt)])
        arm = values["arm_length"] * np.array([np.cos(tilt), np.sin(tilt)])
        thrusts = [values["max_thrust"] * n**2 * axis for n in rotors]
        ends = (-arm, arm)
        total = sum(thrusts) + force - values["mass"] * values["gravity"] * np.array([0.0, 1.0])
        torque = sum(end[0] * thrust[1] - end[1] * thrust[0] for end, thrust in zip(ends, thrusts, strict=True))
        lag = (command - rotors) / values["rotor_lag"]
        return np.concatenate([y[3:6], total / values["mass"], [torque / values["inertia"]], lag])

    for _ in range(5):
        start = np.concatenate([rng.normal(size=6), rng.uniform(size=2)])
        command, force = rng.uniform(size=2), rng.normal(size=2)
        expected = solve_ivp(slope, (0.0, 0.02), start, args=(command, force), rtol=1e-9, atol=1e-9).y[:, -1]
        arrays = (jnp.asarray(x, "float32") for x in (start, command, force))
        np.testing.assert_allclose(rk4_step(params, *arrays, 0.02), expected, rtol=1e-4, atol=1e-4)


def test_hovering_speed_carries_the_weight_and_earns_most():
    params = default_params()
    speed = params.hover_speed()
    assert 2 * params.max_thrust * speed**2 == pytest.approx(float(params.mass * params.gravity), rel=1e-5)
    still = jnp.zeros(8)
    assert planar_reward(still, jnp.full(2, 2 * speed - 1), params) == pytest.approx(2.0)
    moved = jnp.array([0.1, -0.2, 0.6, 1.0, 2.0, 3.0, 0.0, 0.0])
    cost = 5 * 0.05 + 5 * np.sin(0.3) ** 2 + 0.01 * 5 + 0.01 * (0.5 - (2 * float(speed) - 1)) ** 2 * 2
    assert planar_reward(moved, jnp.full(2, 0.5), params) == pytest.approx(2.0 - 0.5 * cost, rel=1e-5)


def test_observations_have_noise_and_commands_privileged_ones_have_neither():
    env = PlanarQuadrotor(history_length=3)
    state, _ = env.reset(env.spec.params, KEY)
    keys = jax.random.split(KEY, 500)
    actions = jnp.array([[0.1, -0.3], [0.4, 0.2]])
    for action in actions:
        state, _ = env.step(state, action, KEY)
    steps = jax.vmap(lambda key: env.step(state, jnp.array([0.5, 0.6]), key)[1])(keys)
    np.testing.assert_allclose(steps.observation[0, 7:], [0.1, -0.3, 0.4, 0.2, 0.5, 0.6], rtol=1e-6)
    assert np.ptp(steps.privileged, axis=0).max() == 0
    spread = np.std(np.asarray(steps.observation[:, :7]) - np.asarray(steps.privileged[:, :7]), axis=0)
    np.testing.assert_allclose(spread, 0.002, rtol=0.15)
    moved, step = env.step(state, jnp.array([0.5, 0.6]), KEY)
    np.testing.assert_allclose(step.privileged[9:], 2 * moved.physics[6:] - 1, rtol=1e-5)
    np.testing.assert_allclose(step.privileged[7:9], moved.force / 9.81, rtol=1e-5)


def test_an_episode_ends_where_the_craft_leaves_its_bounds():
    env = PlanarQuadrotor()
    state, _ = env.reset(env.spec.params, KEY)
    state = eqx.tree_at(lambda s: s.physics, state, state.physics.at[1].set(-0.999).at[4].set(-2.0))
    step = env.step(state, jnp.full(2, -1.0), KEY)[1]
    assert step.terminated and step.reward == 0.0


def test_registry_names():
    for name in ("PlanarQuadrotor", "NO_HISTORY", "NO_PRIVILEGED"):
        assert make_compiled(f"thespis.papers.learning_to_fly.planar:{name}").spec.time_limit == 100
