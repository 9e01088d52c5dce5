"""Quadrotor: dynamics against closed forms, SciPy with rotation matrices and the simulator l2f; noise and rewards."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.spatial.transform import Rotation

from thespis.core.laws.components import check_curriculum, check_environment
from thespis.curricula.domain_randomization import DomainRandomization
from thespis.envs.registry import make_compiled, resolve_env
from thespis.papers.learning_to_fly import envs
from thespis.papers.learning_to_fly.envs import DECKS_QUADROTOR, Quadrotor, hover_reward
from thespis.papers.learning_to_fly.rotorcraft import RigidBodyState, crazyflie, crazyflie_with_decks, rotation_matrix

KEY = jax.random.key(0)
DT = 0.01


def make_state(position=(0, 0, 0), attitude=(1, 0, 0, 0), velocity=(0, 0, 0), rate=(0, 0, 0), rotors=(0, 0, 0, 0)):
    return RigidBodyState(*(jnp.asarray(x, "float32") for x in (position, attitude, velocity, rate, rotors)))


def simulate(airframe, start, commands, dt=DT, force=(0, 0, 0), torque=(0, 0, 0)):
    """The states at the start and after each command, stacked."""
    force, torque = jnp.asarray(force, "float32"), jnp.asarray(torque, "float32")

    def step(state, command):
        state = airframe.integrate(state, command, force, torque, dt)
        return state, state

    _, path = jax.jit(lambda s, c: jax.lax.scan(step, s, c))(start, jnp.asarray(commands, "float32"))
    return jax.tree.map(lambda a, b: np.vstack([a[None], b]).astype(float), start, path)


def random_state(rng):
    rotation = Rotation.random(random_state=rng)
    x, y, z, w = rotation.as_quat()
    attitude = np.array([w, x, y, z])
    return make_state(rng.normal(size=3), attitude, rng.normal(size=3), 4 * rng.normal(size=3), rng.uniform(size=4))


@pytest.mark.parametrize("env", [Quadrotor(), DECKS_QUADROTOR], ids=["published", "decks"])
@pytest.mark.slow
def test_contract(env):
    check_environment(env)


def test_contract_with_short_episodes_without_action_history():
    check_environment(Quadrotor(history_length=0, time_limit=7), num_steps=20)


def test_parameters_can_be_randomized():
    ranges = (("airframe.mass", 0.02, 0.04), ("airframe.rise_time", 0.05, 0.3), ("reward.position", 1.0, 9.0))
    check_curriculum(DomainRandomization(ranges), Quadrotor().spec)


def test_registry_name():
    name = "thespis.papers.learning_to_fly.envs:Quadrotor"
    assert resolve_env(name).kind == "compiled" and make_compiled(name) == Quadrotor()
    assert make_compiled("thespis.papers.learning_to_fly.envs:DECKS_QUADROTOR") is DECKS_QUADROTOR


@pytest.mark.parametrize("airframe", [crazyflie(), crazyflie_with_decks()], ids=["published", "decks"])
def test_hover_speed_balances_gravity(airframe):
    speed = float(airframe.hover_speed())
    path = simulate(airframe, make_state(rotors=[speed] * 4), np.full((100, 4), speed))
    np.testing.assert_allclose(path.velocity[-1], 0, atol=1e-5)
    assert float(jnp.sum(airframe.rotor_thrust(jnp.full(4, speed)))) == pytest.approx(
        float(airframe.mass) * 9.81, rel=1e-6
    )


def test_free_fall_without_thrust():
    path = simulate(crazyflie(), make_state(velocity=[1, 0, 2]), np.zeros((100, 4)))
    np.testing.assert_allclose(path.position[-1], [1.0, 0.0, 2 - 9.81 / 2], atol=1e-5)
    np.testing.assert_allclose(path.velocity[-1], [1.0, 0.0, 2 - 9.81], atol=1e-5)


def test_rotor_speeds_follow_commands_exponentially():
    airframe = crazyflie_with_decks()
    time = DT * np.arange(101)
    up = simulate(airframe, make_state(), np.ones((100, 4))).rotor_speeds[:, 0]
    down = simulate(airframe, make_state(rotors=[1] * 4), np.zeros((100, 4))).rotor_speeds[:, 3]
    np.testing.assert_allclose(up, 1 - np.exp(-time / float(airframe.rise_time)), atol=1e-4)
    np.testing.assert_allclose(down, np.exp(-time / float(airframe.fall_time)), atol=1e-4)


def test_free_rotation_conserves_angular_momentum_and_energy():
    airframe = crazyflie_with_decks()
    # without thrust and rotor speed there is no torque
    thrustless = eqx.tree_at(lambda a: a.thrust_coefficients, airframe, jnp.zeros(3))
    path = simulate(thrustless, make_state(rate=[3.0, -5.0, 8.0]), np.zeros((500, 4)))
    inertia = np.asarray(airframe.inertia, float)
    rotations = Rotation.from_quat(path.attitude[:, [1, 2, 3, 0]])
    momentum = rotations.apply(inertia * path.angular_velocity)
    energy = (inertia * path.angular_velocity**2).sum(axis=1)
    np.testing.assert_allclose(
        momentum, np.broadcast_to(momentum[0], momentum.shape), atol=1e-3 * np.abs(momentum).max()
    )
    np.testing.assert_allclose(energy, energy[0], rtol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(path.attitude, axis=1), 1, atol=1e-6)
    assert np.ptp(path.angular_velocity[:, 0]) > 1  # it tumbles: the rate itself is not constant


def simulate_with_scipy(airframe, start, commands, force, torque):
    """The final state by an adaptive integrator, with rotation matrices and forces summed rotor by rotor."""
    mass, inertia = float(airframe.mass), np.diag(np.asarray(airframe.inertia, float))
    thrust_curve, torque_coefficient = (
        np.asarray(airframe.thrust_coefficients, float)[::-1],
        float(airframe.torque_coefficient),
    )
    rise, fall, arm = (float(x) for x in (airframe.rise_time, airframe.fall_time, airframe.arm_length))
    arms = arm * np.array([[1, -1, 0], [-1, -1, 0], [-1, 1, 0], [1, 1, 0]])
    spins = [-1, 1, -1, 1]

    def slope(_, y, command):
        velocity, rotation, rate, rotors = y[3:6], y[6:15].reshape(3, 3), y[15:18], y[18:22]
        thrusts = [np.array([0, 0, np.polyval(thrust_curve, n)]) for n in rotors]
        moment = sum(
            np.cross(arm_vector, thrust) + spin * torque_coefficient * thrust
            for arm_vector, thrust, spin in zip(arms, thrusts, spins, strict=True)
        )
        x, y_, z = rate
        cross = np.array([[0, -z, y_], [z, 0, -x], [-y_, x, 0]])
        gain = np.where(command >= rotors, 1 / rise, 1 / fall)
        acceleration = rotation @ sum(thrusts) / mass + force / mass - [0, 0, 9.81]
        angular_acceleration = np.linalg.solve(inertia, moment + torque - np.cross(rate, inertia @ rate))
        return np.concatenate(
            [velocity, acceleration, (rotation @ cross).ravel(), angular_acceleration, gain * (command - rotors)]
        )

    w, x, y, z = np.asarray(start.attitude, float)
    rotation = Rotation.from_quat([x, y, z, w]).as_matrix()
    y0 = np.concatenate(
        [start.position, start.velocity, rotation.ravel(), start.angular_velocity, start.rotor_speeds]
    ).astype(float)
    for command in commands:
        y0 = solve_ivp(slope, (0, DT), y0, args=(command,), rtol=1e-9, atol=1e-10).y[:, -1]
    return y0


@pytest.mark.parametrize("seed", range(3))
def test_motion_matches_scipy(seed):
    rng = np.random.default_rng(seed)
    airframe = (crazyflie(), crazyflie_with_decks())[seed % 2]
    start, commands = random_state(rng), 0.5 + 0.1 * rng.uniform(-1, 1, (25, 4))
    force, torque = 0.02 * rng.normal(size=3), 1e-5 * rng.normal(size=3)
    path = simulate(airframe, start, commands.repeat(5, axis=0), DT / 5, force, torque)
    end = jax.tree.map(lambda x: x[-1], path)
    expected = simulate_with_scipy(airframe, start, commands, force, torque)
    np.testing.assert_allclose(end.position, expected[:3], atol=2e-4)
    np.testing.assert_allclose(end.velocity, expected[3:6], atol=2e-3)
    np.testing.assert_allclose(rotation_matrix(jnp.asarray(end.attitude)), expected[6:15].reshape(3, 3), atol=5e-3)
    np.testing.assert_allclose(end.angular_velocity, expected[15:18], rtol=5e-3, atol=2e-2)
    np.testing.assert_allclose(end.rotor_speeds, expected[18:], atol=1e-4)


@pytest.mark.flight
def test_motion_matches_l2f():
    import l2f

    device, rng, env, params = l2f.Device(), l2f.Rng(), l2f.Environment(), l2f.Parameters()
    before, after = l2f.State(), l2f.State()
    l2f.initialize_environment(device, env)
    l2f.initialize_rng(device, rng, 0)
    l2f.initial_parameters(device, env, params)
    l2f.initial_state(device, env, params, before)
    numpy_rng = np.random.default_rng(1)
    for _ in range(20):
        start, action = random_state(numpy_rng), numpy_rng.uniform(-1, 1, 4)
        before.position, before.orientation = np.asarray(start.position), np.asarray(start.attitude)
        before.linear_velocity, before.angular_velocity = np.asarray(start.velocity), np.asarray(start.angular_velocity)
        before.rpm = np.asarray(start.rotor_speeds)
        l2f.step(device, env, params, before, list(action), after, rng)
        result = jax.tree.map(lambda x: x[-1], simulate(crazyflie_with_decks(), start, (action[None] + 1) / 2))
        np.testing.assert_allclose(result.position, after.position, atol=1e-5)
        np.testing.assert_allclose(result.attitude, after.orientation, atol=1e-5)
        np.testing.assert_allclose(result.velocity, after.linear_velocity, atol=1e-4)
        np.testing.assert_allclose(result.angular_velocity, after.angular_velocity, atol=1e-3)
        np.testing.assert_allclose(result.rotor_speeds, after.rpm, atol=1e-5)


def test_distribution_of_initial_states():
    start = envs.default_params().initial_state
    states = jax.jit(jax.vmap(lambda key: envs.sample_initial_state(start, key)))(jax.random.split(KEY, 20_000))
    guided = np.all(np.asarray(states.position) == 0, axis=1)
    assert guided.mean() == pytest.approx(0.1, abs=0.01)
    free = jax.tree.map(lambda x: np.asarray(x)[~guided], states)
    angle = 2 * np.arccos(np.clip(free.attitude[:, 0], -1, 1))
    assert angle.max() <= np.pi / 2 + 1e-3 and np.all(free.rotor_speeds == 0.5)
    uniform = Rotation.random(200_000, random_state=0).magnitude()
    expected = uniform[uniform <= np.pi / 2]
    shares = np.linspace(0.1, 0.9, 9)
    np.testing.assert_allclose(np.quantile(angle, shares), np.quantile(expected, shares), atol=0.02)
    axis = free.attitude[:, 1:] / np.linalg.norm(free.attitude[:, 1:], axis=1, keepdims=True)
    np.testing.assert_allclose(axis.mean(axis=0), 0, atol=0.02)
    for values, bound in ((free.position, 0.2), (free.velocity, 1.0), (free.angular_velocity, 1.0)):
        assert np.abs(values).max() <= bound and np.ptp(values) > 1.95 * bound
        np.testing.assert_allclose(values.std(axis=0), bound / 3**0.5, rtol=0.03)


def test_observation_noise_and_noise_free_privileged_observation():
    env = Quadrotor()
    state, _ = env.reset(env.spec.params, KEY)
    keys = jax.random.split(jax.random.key(1), 4_000)
    _, timesteps = jax.jit(jax.vmap(env.step, (None, None, 0)))(state, jnp.zeros(4), keys)
    privileged = np.asarray(timesteps.privileged)
    assert np.ptp(privileged, axis=0).max() == 0
    error = np.asarray(timesteps.observation)[:, :18] - privileged[:, :18]
    deviations = np.repeat([0.001, 0.001, 0.002, 0.002], [3, 9, 3, 3])
    np.testing.assert_allclose(error.std(axis=0), deviations, rtol=0.06)
    np.testing.assert_allclose(error.mean(axis=0), 0, atol=2e-4)


def test_action_history_is_observed_oldest_first():
    env = Quadrotor(history_length=3)
    state, first = env.reset(env.spec.params, KEY)
    np.testing.assert_array_equal(first.observation[18:], 0)  # rotors start at half of their maximal speed
    for i in range(1, 5):
        state, timestep = env.step(state, jnp.full(4, i / 10), jax.random.key(i))
    np.testing.assert_allclose(timestep.observation[18:].reshape(3, 4)[:, 2], [0.2, 0.3, 0.4])
    np.testing.assert_allclose(timestep.privileged[-4:], 2 * state.body.rotor_speeds - 1)


def test_reward_of_known_states():
    params = envs.default_params()
    hover_action = jnp.full(4, 2 * params.airframe.hover_speed() - 1)
    tilted = make_state(attitude=[np.cos(0.25), np.sin(0.25), 0, 0])
    assert float(hover_reward(make_state(), hover_action, params)) == 2.0
    assert float(hover_reward(make_state(position=[0.1, 0, 0.2]), hover_action, params)) == pytest.approx(
        2 - 0.5 * 5 * 0.05
    )
    assert float(hover_reward(tilted, hover_action, params)) == pytest.approx(2 - 0.5 * 5 * np.sin(0.25) ** 2)
    assert float(hover_reward(make_state(velocity=[2, 0, 0]), hover_action, params)) == pytest.approx(
        2 - 0.5 * 0.01 * 4
    )
    assert float(hover_reward(make_state(), hover_action + 0.5, params)) == pytest.approx(2 - 0.5 * 0.01 * 1)
    assert float(hover_action[0]) == pytest.approx(0.334, abs=1e-3)  # the hover action of the authors' code


@pytest.mark.parametrize(("field", "bound"), [("position", 0.6), ("velocity", 1_000.0), ("angular_velocity", 1_000.0)])
def test_episodes_terminate_out_of_bounds(field, bound):
    env = Quadrotor()
    state, _ = env.reset(env.spec.params, KEY)
    for value, ends in ((0.97 * bound, False), (1.03 * bound, True)):
        body = dataclasses.replace(make_state(rotors=[0.667] * 4), **{field: jnp.array([0.0, -value, 0.0])})
        changed = eqx.tree_at(lambda s: s.body, state, body)
        if field == "velocity":
            changed = eqx.tree_at(lambda s: s.params.bounds.position, changed, jnp.float32(1e6))
        _, timestep = env.step(changed, jnp.full(4, 0.334), KEY)
        assert bool(timestep.terminated) == ends and not bool(timestep.truncated)
        assert (float(timestep.reward) == 0.0) == ends or not ends
    late = eqx.tree_at(lambda s: (s.body, s.time), state, (make_state(rotors=[0.667] * 4), jnp.int32(499)))
    assert bool(env.step(late, jnp.full(4, 0.334), KEY)[1].truncated)
