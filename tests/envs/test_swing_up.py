"""Cart-pole swing-up: dynamics, track stops and rewards, against SciPy, closed forms and conservation laws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from thespis.core.laws.components import check_curriculum, check_environment
from thespis.curricula.domain_randomization import DomainRandomization
from thespis.envs.compiled.swing_up import SwingUp, SwingUpParams, SwingUpState, swing_up_reward
from thespis.envs.registry import make_compiled, resolve_env

M, m, L, FORCE, G, TRACK = 1.0, 0.1, 0.5, 10.0, 9.81, 1.8  # L is half the length of the pole


def make_params(**changed):
    """Default parameters with changes."""
    fields = dict(cart_mass=M, pole_mass=m, pole_length=2 * L, force=FORCE, gravity=G, track=TRACK) | changed
    return SwingUpParams(**{name: jnp.float32(value) for name, value in fields.items()})


def trajectory(start, controls, parameters):
    """States of one episode at the start and after each of ``controls``, in double precision."""
    init_state = SwingUpState(jnp.asarray(np.asarray(start, "float32")), jnp.int32(0), parameters)
    return np.vstack([init_state.physics, simulate(init_state, np.asarray(controls, "float32"))]).astype(float)


@jax.jit
def simulate(init_state, controls):
    def step(state, control):
        state, _ = SwingUp().step(state, control[None], jax.random.key(0))
        return state, state.physics

    return jax.lax.scan(step, init_state, controls)[1]


reset = jax.jit(SwingUp().reset)
reward_of, clamp = jax.jit(swing_up_reward), jax.jit(SwingUpParams.clamp_to_track)


def energy(path):
    _, velocity, angle, angular_velocity = path.T
    cart = (M + m) * velocity**2 / 2
    return (
        cart
        + m * L * np.cos(angle) * velocity * angular_velocity
        + 2 / 3 * m * L**2 * angular_velocity**2
        + m * G * L * np.cos(angle)
    )


def period(wave, dt=0.05):
    """Mean time in seconds between upward crossings of 0."""
    before = np.flatnonzero((wave[:-1] < 0) & (wave[1:] >= 0))
    rises = before - wave[before] / (wave[before + 1] - wave[before])
    return dt * (rises[-1] - rises[0]) / (len(rises) - 1)


def test_contract():
    check_environment(SwingUp(time_limit=7), num_steps=20)
    check_curriculum(DomainRandomization((("pole_length", 0.5, 1.5), ("force", 5.0, 10.0))), SwingUp().spec)


@pytest.mark.slow
def test_contract_with_defaults():
    check_environment(SwingUp())


def test_registry_name():
    name = "thespis.envs.compiled.swing_up:SwingUp"
    assert resolve_env(name).kind == "compiled" and make_compiled(name) == SwingUp()


@pytest.mark.parametrize(("angular_velocity", "drift"), [(0.0, 1e-5), (5.0, 1e-4), (15.0, 2e-3)])
def test_energy_is_conserved_without_force(angular_velocity, drift):
    energies = energy(trajectory([0.0, 0.0, 1.0, angular_velocity], np.zeros(200), make_params(track=1e6)))
    np.testing.assert_allclose(energies, energies[0], atol=drift)


def test_period_of_small_oscillations():
    free = trajectory([0.0, 0.0, np.pi + 0.01, 0.0], np.zeros(200), make_params())[:, 2] - np.pi
    assert period(free) == pytest.approx(2 * np.pi * np.sqrt(L * (4 / 3 - m / (M + m)) / G), rel=1e-3)
    blocked = trajectory([TRACK, 0.0, np.pi + 0.01, 0.0], np.ones(200), make_params())[:, 2] - np.pi
    assert period(blocked) == pytest.approx(2 * np.pi * np.sqrt(4 / 3 * L / G), rel=1e-3)


def test_motion_matches_lagrangian_and_scipy():
    def slope(_, state, force):
        _, velocity, angle, angular_velocity = state
        mass = [[M + m, m * L * np.cos(angle)], [m * L * np.cos(angle), 4 / 3 * m * L**2]]
        forces = [force + m * L * angular_velocity**2 * np.sin(angle), m * G * L * np.sin(angle)]
        acceleration, angular_acceleration = np.linalg.solve(mass, forces)
        return [velocity, acceleration, angular_velocity, angular_acceleration]

    controls = np.random.default_rng(0).uniform(-1, 1, 60)
    result = trajectory([0.1, -0.2, 3.0, 0.5], controls, make_params(track=1e6))
    expected = [result[0]]
    for control in controls:
        solution = solve_ivp(slope, (0, 0.05), expected[-1], args=(FORCE * control,), rtol=1e-9, atol=1e-9)
        expected.append(solution.y[:, -1])
    np.testing.assert_allclose(result, expected, atol=1e-3)


def test_track_stops_hold_the_cart_and_add_no_energy():
    path = trajectory([1.5, 3.0, 2.0, -4.0], np.zeros(200), make_params())
    assert np.abs(path[:, 0]).max() == np.float32(TRACK)
    assert np.diff(energy(path)).max() < 1e-4
    assert energy(path)[-1] < energy(path)[0] - 1


def test_impact_conserves_the_angular_momentum():
    def momentum(state):
        _, velocity, angle, angular_velocity = np.asarray(state, float)
        return m * L * np.cos(angle) * velocity + 4 / 3 * m * L**2 * angular_velocity

    before = np.array([-1.9, -2.0, 0.7, 1.0], "float32")
    after = clamp(make_params(), before)
    np.testing.assert_allclose(np.asarray(after)[:3], [-TRACK, 0.0, 0.7], rtol=1e-6)
    assert momentum(after) == pytest.approx(momentum(before), rel=1e-5)
    np.testing.assert_array_equal(clamp(make_params(), after), after)


@pytest.mark.parametrize(
    ("x", "angle", "angular_velocity", "control", "expected"),
    [
        (0, 0, 0, 0, 1.0),
        (0, np.pi, 0, 0, 0.0),
        (0, np.pi / 2, 0, 0, 0.5),
        (2, 0, 0, 0, 0.55),
        (0, 0, -5, 0, 0.55),
        (0, 0, 0, -1, 0.8),
        (2, np.pi / 3, 5, 0.5, 0.75 * 0.55 * 0.55 * 0.95),
    ],
)
def test_rewards_of_known_states(x, angle, angular_velocity, control, expected):
    state = np.array([x, 7.0, angle, angular_velocity], "float32")
    assert reward_of(state, np.float32(control)) == pytest.approx(expected, abs=1e-6)


def test_random_episodes():
    env = SwingUp(time_limit=50)

    def play(key):
        state, first = env.reset(env.spec.params, key)
        actions = jax.random.uniform(key, (50, 1), minval=-1)
        return first, jax.lax.scan(lambda s, a: env.step(s, a, key), state, actions)[1]

    first, steps = jax.tree.map(np.asarray, jax.jit(jax.vmap(play))(jax.random.split(jax.random.key(0), 16)))
    np.testing.assert_allclose(first.observation, np.tile([0, 0, -1, 0, 0], (16, 1)), atol=0.051)
    assert len(np.unique(first.observation, axis=0)) == 16
    np.testing.assert_allclose((steps.observation[..., 2:4] ** 2).sum(-1), 1, atol=1e-5)
    assert steps.reward.min() >= 0 and 0.01 < steps.reward.max() <= 1
    assert steps.observation[..., 2].max() > 0  # the force moves the pole
    assert not steps.terminated.any()
    assert steps.truncated.tolist() == [[False] * 49 + [True]] * 16


def test_parameters_are_per_episode():
    stacked = jax.tree.map(lambda *x: np.stack(x), make_params(), make_params(force=0.0), make_params(cart_mass=1e6))

    @jax.jit
    def speed_changes(parameters):
        states, _ = jax.vmap(SwingUp().reset, (0, None))(parameters, jax.random.key(0))
        next_states, _ = jax.vmap(SwingUp().step, (0, None, None))(states, jnp.ones(1), jax.random.key(1))
        return next_states.physics[:, 1] - states.physics[:, 1]

    changes = np.asarray(speed_changes(stacked))
    assert changes[0] == pytest.approx(FORCE / (M + m) * 0.05, rel=0.1)
    assert np.abs(changes[1:]).max() < 0.02


def test_actions_are_clipped_to_the_bounds():
    state, _ = reset(make_params(), jax.random.key(0))
    step = jax.jit(SwingUp().step)
    outside, inside = (step(state, np.full(1, a, "float32"), jax.random.key(0)) for a in (9.0, 1.0))
    jax.tree.map(np.testing.assert_array_equal, outside, inside)
