"""The quadrotor against closed forms, and against the same physics written with rotation matrices for scipy."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.spatial.transform import Rotation

from thespis.core.conformance import check_curriculum, check_environment
from thespis.curricula.domain_randomisation import DomainRandomisation
from thespis.envs.compiled import flights
from thespis.envs.compiled.quadrotor import DECKED, Quadrotor, reward
from thespis.envs.compiled.rotorcraft import Motion, crazyflie, crazyflie_with_decks, rotation
from thespis.envs.registry import compiled, resolve

KEY = jax.random.key(0)
DT = 0.01


def motion(position=(0, 0, 0), attitude=(1, 0, 0, 0), velocity=(0, 0, 0), rate=(0, 0, 0), rotors=(0, 0, 0, 0)):
    return Motion(*(jnp.asarray(x, "float32") for x in (position, attitude, velocity, rate, rotors)))


def flown(airframe, start, commands, dt=DT, force=(0, 0, 0), torque=(0, 0, 0)):
    """The motions after each command, stacked, the start first."""
    force, torque = jnp.asarray(force, "float32"), jnp.asarray(torque, "float32")

    def step(now, command):
        now = airframe.moved(now, command, force, torque, dt)
        return now, now

    _, path = jax.jit(lambda s, c: jax.lax.scan(step, s, c))(start, jnp.asarray(commands, "float32"))
    return jax.tree.map(lambda a, b: np.vstack([a[None], b]).astype(float), start, path)


def tumbling(rng):
    turn = Rotation.random(random_state=rng)
    x, y, z, w = turn.as_quat()
    attitude = np.array([w, x, y, z])
    return motion(rng.normal(size=3), attitude, rng.normal(size=3), 4 * rng.normal(size=3), rng.uniform(size=4))


@pytest.mark.parametrize("world", [Quadrotor(), DECKED], ids=["published", "decks"])
@pytest.mark.slow
def test_the_contract(world):
    check_environment(world)


def test_the_contract_of_short_flights_without_memory():
    check_environment(Quadrotor(history=0, limit=7), ticks=20)


def test_every_number_can_be_varied():
    ranges = (("airframe.mass", 0.02, 0.04), ("airframe.rise", 0.05, 0.3), ("reward.position", 1.0, 9.0))
    check_curriculum(DomainRandomisation(ranges), Quadrotor().spec)


def test_it_can_be_named():
    name = "thespis.envs.compiled.quadrotor:Quadrotor"
    assert resolve(name).kind == "compiled" and compiled(name) == Quadrotor()
    assert compiled("thespis.envs.compiled.quadrotor:DECKED") is DECKED


@pytest.mark.parametrize("airframe", [crazyflie(), crazyflie_with_decks()], ids=["published", "decks"])
def test_hovering_rotors_carry_the_weight(airframe):
    speed = float(airframe.hover())
    path = flown(airframe, motion(rotors=[speed] * 4), np.full((100, 4), speed))
    np.testing.assert_allclose(path.velocity[-1], 0, atol=1e-5)
    assert float(jnp.sum(airframe.push(jnp.full(4, speed)))) == pytest.approx(float(airframe.mass) * 9.81, rel=1e-6)


def test_without_thrust_it_falls():
    path = flown(crazyflie(), motion(velocity=[1, 0, 2]), np.zeros((100, 4)))
    np.testing.assert_allclose(path.position[-1], [1.0, 0.0, 2 - 9.81 / 2], atol=1e-5)
    np.testing.assert_allclose(path.velocity[-1], [1.0, 0.0, 2 - 9.81], atol=1e-5)


def test_rotors_follow_exponentially_up_and_down():
    airframe = crazyflie_with_decks()
    time = DT * np.arange(101)
    up = flown(airframe, motion(), np.ones((100, 4))).rotors[:, 0]
    down = flown(airframe, motion(rotors=[1] * 4), np.zeros((100, 4))).rotors[:, 3]
    np.testing.assert_allclose(up, 1 - np.exp(-time / float(airframe.rise)), atol=1e-4)
    np.testing.assert_allclose(down, np.exp(-time / float(airframe.fall)), atol=1e-4)


def test_what_is_not_pushed_keeps_its_angular_momentum_and_energy():
    airframe = crazyflie_with_decks()
    # two commands hold all torques at zero only for equal rotors; none turn here
    still = eqx.tree_at(lambda a: a.thrust, airframe, jnp.zeros(3))
    path = flown(still, motion(rate=[3.0, -5.0, 8.0]), np.zeros((500, 4)))
    inertia = np.asarray(airframe.inertia, float)
    turns = Rotation.from_quat(path.attitude[:, [1, 2, 3, 0]])
    momentum = turns.apply(inertia * path.rate)
    energy = (inertia * path.rate**2).sum(axis=1)
    np.testing.assert_allclose(
        momentum, np.broadcast_to(momentum[0], momentum.shape), atol=1e-3 * np.abs(momentum).max()
    )
    np.testing.assert_allclose(energy, energy[0], rtol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(path.attitude, axis=1), 1, atol=1e-6)
    assert np.ptp(path.rate[:, 0]) > 1  # it does tumble: the rate itself is not kept


def by_scipy(airframe, start, commands, force, torque):
    """The end of ``commands`` with an adaptive integrator: rotation matrices, forces summed rotor by rotor."""
    mass, inertia = float(airframe.mass), np.diag(np.asarray(airframe.inertia, float))
    curve, twist = np.asarray(airframe.thrust, float)[::-1], float(airframe.torque)
    rise, fall, arm = (float(x) for x in (airframe.rise, airframe.fall, airframe.arm))
    places = arm * np.array([[1, -1, 0], [-1, -1, 0], [-1, 1, 0], [1, 1, 0]])
    spins = [-1, 1, -1, 1]

    def slope(_, y, command):
        velocity, turn, rate, rotors = y[3:6], y[6:15].reshape(3, 3), y[15:18], y[18:22]
        pushes = [np.array([0, 0, np.polyval(curve, n)]) for n in rotors]
        moment = sum(
            np.cross(place, push) + spin * twist * push for place, push, spin in zip(places, pushes, spins, strict=True)
        )
        x, y_, z = rate
        cross = np.array([[0, -z, y_], [z, 0, -x], [-y_, x, 0]])
        gain = np.where(command >= rotors, 1 / rise, 1 / fall)
        acceleration = turn @ sum(pushes) / mass + force / mass - [0, 0, 9.81]
        bend = np.linalg.solve(inertia, moment + torque - np.cross(rate, inertia @ rate))
        return np.concatenate([velocity, acceleration, (turn @ cross).ravel(), bend, gain * (command - rotors)])

    w, x, y, z = np.asarray(start.attitude, float)
    turn = Rotation.from_quat([x, y, z, w]).as_matrix()
    now = np.concatenate([start.position, start.velocity, turn.ravel(), start.rate, start.rotors]).astype(float)
    for command in commands:
        now = solve_ivp(slope, (0, DT), now, args=(command,), rtol=1e-9, atol=1e-10).y[:, -1]
    return now


@pytest.mark.parametrize("seed", range(3))
def test_it_moves_as_an_adaptive_integrator_says(seed):
    rng = np.random.default_rng(seed)
    airframe = (crazyflie(), crazyflie_with_decks())[seed % 2]
    start, commands = tumbling(rng), 0.5 + 0.1 * rng.uniform(-1, 1, (25, 4))
    force, torque = 0.02 * rng.normal(size=3), 1e-5 * rng.normal(size=3)
    path = flown(airframe, start, commands.repeat(5, axis=0), DT / 5, force, torque)
    end = jax.tree.map(lambda x: x[-1], path)
    other = by_scipy(airframe, start, commands, force, torque)
    np.testing.assert_allclose(end.position, other[:3], atol=2e-4)
    np.testing.assert_allclose(end.velocity, other[3:6], atol=2e-3)
    np.testing.assert_allclose(rotation(jnp.asarray(end.attitude)), other[6:15].reshape(3, 3), atol=5e-3)
    np.testing.assert_allclose(end.rate, other[15:18], rtol=5e-3, atol=2e-2)
    np.testing.assert_allclose(end.rotors, other[18:], atol=1e-4)


@pytest.mark.flight
def test_it_moves_as_l2f_does():
    import l2f

    device, rng, env, told = l2f.Device(), l2f.Rng(), l2f.Environment(), l2f.Parameters()
    before, after = l2f.State(), l2f.State()
    l2f.initialize_environment(device, env)
    l2f.initialize_rng(device, rng, 0)
    l2f.initial_parameters(device, env, told)
    l2f.initial_state(device, env, told, before)
    draws = np.random.default_rng(1)
    for _ in range(20):
        start, action = tumbling(draws), draws.uniform(-1, 1, 4)
        before.position, before.orientation = np.asarray(start.position), np.asarray(start.attitude)
        before.linear_velocity, before.angular_velocity = np.asarray(start.velocity), np.asarray(start.rate)
        before.rpm = np.asarray(start.rotors)
        l2f.step(device, env, told, before, list(action), after, rng)
        moved = jax.tree.map(lambda x: x[-1], flown(crazyflie_with_decks(), start, (action[None] + 1) / 2))
        np.testing.assert_allclose(moved.position, after.position, atol=1e-5)
        np.testing.assert_allclose(moved.attitude, after.orientation, atol=1e-5)
        np.testing.assert_allclose(moved.velocity, after.linear_velocity, atol=1e-4)
        np.testing.assert_allclose(moved.rate, after.angular_velocity, atol=1e-3)
        np.testing.assert_allclose(moved.rotors, after.rpm, atol=1e-5)


def test_starts_are_as_told():
    start = flights.published().start
    begun = jax.jit(jax.vmap(lambda key: flights.begin(start, key)))(jax.random.split(KEY, 20_000))
    guided = np.all(np.asarray(begun.position) == 0, axis=1)
    assert guided.mean() == pytest.approx(0.1, abs=0.01)
    free = jax.tree.map(lambda x: np.asarray(x)[~guided], begun)
    angle = 2 * np.arccos(np.clip(free.attitude[:, 0], -1, 1))
    assert angle.max() <= np.pi / 2 + 1e-3 and np.all(free.rotors == 0.5)
    uniform = Rotation.random(200_000, random_state=0).magnitude()
    wanted = uniform[uniform <= np.pi / 2]
    shares = np.linspace(0.1, 0.9, 9)
    np.testing.assert_allclose(np.quantile(angle, shares), np.quantile(wanted, shares), atol=0.02)
    axis = free.attitude[:, 1:] / np.linalg.norm(free.attitude[:, 1:], axis=1, keepdims=True)
    np.testing.assert_allclose(axis.mean(axis=0), 0, atol=0.02)
    for values, bound in ((free.position, 0.2), (free.velocity, 1.0), (free.rate, 1.0)):
        assert np.abs(values).max() <= bound and np.ptp(values) > 1.95 * bound
        np.testing.assert_allclose(values.std(axis=0), bound / 3**0.5, rtol=0.03)


def test_noise_is_as_told_and_critics_see_none():
    world = Quadrotor()
    state, _ = world.reset(world.spec.params, KEY)
    keys = jax.random.split(jax.random.key(1), 4_000)
    _, answers = jax.jit(jax.vmap(world.step, (None, None, 0)))(state, jnp.zeros(4), keys)
    told = np.asarray(answers.privileged)
    assert np.ptp(told, axis=0).max() == 0
    error = np.asarray(answers.observation)[:, :18] - told[:, :18]
    deviations = np.repeat([0.001, 0.001, 0.002, 0.002], [3, 9, 3, 3])
    np.testing.assert_allclose(error.std(axis=0), deviations, rtol=0.06)
    np.testing.assert_allclose(error.mean(axis=0), 0, atol=2e-4)


def test_the_actor_sees_its_last_actions_oldest_first():
    world = Quadrotor(history=3)
    state, first = world.reset(world.spec.params, KEY)
    np.testing.assert_array_equal(first.observation[18:], 0)  # rotors begin at half their highest speed
    for i in range(1, 5):
        state, answer = world.step(state, jnp.full(4, i / 10), jax.random.key(i))
    np.testing.assert_allclose(answer.observation[18:].reshape(3, 4)[:, 2], [0.2, 0.3, 0.4])
    np.testing.assert_allclose(answer.privileged[-4:], 2 * state.motion.rotors - 1)


def test_reward_of_known_states():
    flight = flights.published()
    resting = jnp.full(4, 2 * flight.airframe.hover() - 1)
    turned = motion(attitude=[np.cos(0.25), np.sin(0.25), 0, 0])
    assert float(reward(motion(), resting, flight)) == 2.0
    assert float(reward(motion(position=[0.1, 0, 0.2]), resting, flight)) == pytest.approx(2 - 0.5 * 5 * 0.05)
    assert float(reward(turned, resting, flight)) == pytest.approx(2 - 0.5 * 5 * np.sin(0.25) ** 2)
    assert float(reward(motion(velocity=[2, 0, 0]), resting, flight)) == pytest.approx(2 - 0.5 * 0.01 * 4)
    assert float(reward(motion(), resting + 0.5, flight)) == pytest.approx(2 - 0.5 * 0.01 * 1)
    assert float(resting[0]) == pytest.approx(0.334, abs=1e-3)  # the authors' action at rest


@pytest.mark.parametrize(("what", "bound"), [("position", 0.6), ("velocity", 1_000.0), ("rate", 1_000.0)])
def test_flights_end_out_of_bounds(what, bound):
    world = Quadrotor()
    state, _ = world.reset(world.spec.params, KEY)
    for value, ends in ((0.97 * bound, False), (1.03 * bound, True)):
        placed = dataclasses.replace(motion(rotors=[0.667] * 4), **{what: jnp.array([0.0, -value, 0.0])})
        inside = eqx.tree_at(lambda s: s.motion, state, placed)
        if what == "velocity":
            inside = eqx.tree_at(lambda s: s.flight.bounds.position, inside, jnp.float32(1e6))
        _, answer = world.step(inside, jnp.full(4, 0.334), KEY)
        assert bool(answer.terminated) == ends and not bool(answer.truncated)
        assert (float(answer.reward) == 0.0) == ends or not ends
    late = eqx.tree_at(lambda s: (s.motion, s.time), state, (motion(rotors=[0.667] * 4), jnp.int32(499)))
    assert bool(world.step(late, jnp.full(4, 0.334), KEY)[1].truncated)
