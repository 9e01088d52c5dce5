import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from thespis.core.conformance import check_curriculum, check_environment
from thespis.curricula.domain_randomisation import DomainRandomisation
from thespis.envs.compiled.swing_up import Rig, Swing, SwingUp, reward
from thespis.envs.registry import compiled, resolve

M, m, L, FORCE, G, TRACK = 1.0, 0.1, 0.5, 10.0, 9.81, 1.8  # L is half of the pole's length


def rig(**changed):
    """The default parameters, some of them changed."""
    fields = dict(cart_mass=M, pole_mass=m, pole_length=2 * L, force=FORCE, gravity=G, track=TRACK) | changed
    return Rig(**{name: jnp.float32(value) for name, value in fields.items()})


def motions(begin, controls, parameters):
    """Where one episode is after each of ``controls``, in double precision; the start first."""

    begun = Swing(jnp.asarray(np.asarray(begin, "float32")), jnp.int32(0), parameters)
    return np.vstack([begun.motion, driven(begun, np.asarray(controls, "float32"))]).astype(float)


@jax.jit
def driven(begun, controls):
    def step(state, control):
        state, _ = SwingUp().step(state, control[None], jax.random.key(0))
        return state, state.motion

    return jax.lax.scan(step, begun, controls)[1]


start = jax.jit(SwingUp().reset)
paid_for, stopped = jax.jit(reward), jax.jit(Rig.stopped)


def energy(path):
    _, velocity, angle, spin = path.T
    cart = (M + m) * velocity**2 / 2
    return cart + m * L * np.cos(angle) * velocity * spin + 2 / 3 * m * L**2 * spin**2 + m * G * L * np.cos(angle)


def period(wave, dt=0.05):
    """Seconds between the first and the last rise through 0, over the number of rises."""
    at = np.flatnonzero((wave[:-1] < 0) & (wave[1:] >= 0))
    rises = at - wave[at] / (wave[at + 1] - wave[at])
    return dt * (rises[-1] - rises[0]) / (len(rises) - 1)


def test_the_contract():
    check_environment(SwingUp(limit=7), ticks=20)
    check_curriculum(DomainRandomisation((("pole_length", 0.5, 1.5), ("force", 5.0, 10.0))), SwingUp().spec)


@pytest.mark.slow
def test_the_contract_by_default():
    check_environment(SwingUp())


def test_it_can_be_named():
    name = "thespis.envs.compiled.swing_up:SwingUp"
    assert resolve(name).kind == "compiled" and compiled(name) == SwingUp()


@pytest.mark.parametrize(("spin", "drift"), [(0.0, 1e-5), (5.0, 1e-4), (15.0, 2e-3)])
def test_what_is_not_pushed_keeps_its_energy(spin, drift):
    held = energy(motions([0.0, 0.0, 1.0, spin], np.zeros(200), rig(track=1e6)))
    np.testing.assert_allclose(held, held[0], atol=drift)


def test_small_swings_have_the_period_of_theory():
    free = motions([0.0, 0.0, np.pi + 0.01, 0.0], np.zeros(200), rig())[:, 2] - np.pi
    assert period(free) == pytest.approx(2 * np.pi * np.sqrt(L * (4 / 3 - m / (M + m)) / G), rel=1e-3)
    held = motions([TRACK, 0.0, np.pi + 0.01, 0.0], np.ones(200), rig())[:, 2] - np.pi
    assert period(held) == pytest.approx(2 * np.pi * np.sqrt(4 / 3 * L / G), rel=1e-3)


def test_the_same_motion_as_lagrange_and_scipy():
    def slope(_, motion, push):
        _, velocity, angle, spin = motion
        mass = [[M + m, m * L * np.cos(angle)], [m * L * np.cos(angle), 4 / 3 * m * L**2]]
        forces = [push + m * L * spin**2 * np.sin(angle), m * G * L * np.sin(angle)]
        slide, bend = np.linalg.solve(mass, forces)
        return [velocity, slide, spin, bend]

    controls = np.random.default_rng(0).uniform(-1, 1, 60)
    ours = motions([0.1, -0.2, 3.0, 0.5], controls, rig(track=1e6))
    theirs = [ours[0]]
    for control in controls:
        span = solve_ivp(slope, (0, 0.05), theirs[-1], args=(FORCE * control,), rtol=1e-9, atol=1e-9)
        theirs.append(span.y[:, -1])
    np.testing.assert_allclose(ours, theirs, atol=1e-3)


def test_the_stops_hold_the_cart_and_give_no_energy():
    path = motions([1.5, 3.0, 2.0, -4.0], np.zeros(200), rig())
    assert np.abs(path[:, 0]).max() == np.float32(TRACK)
    assert np.diff(energy(path)).max() < 1e-4
    assert energy(path)[-1] < energy(path)[0] - 1


def test_a_blow_keeps_the_momentum_of_the_angle():
    def momentum(motion):
        _, velocity, angle, spin = np.asarray(motion, float)
        return m * L * np.cos(angle) * velocity + 4 / 3 * m * L**2 * spin

    before = np.array([-1.9, -2.0, 0.7, 1.0], "float32")
    after = stopped(rig(), before)
    np.testing.assert_allclose(np.asarray(after)[:3], [-TRACK, 0.0, 0.7], rtol=1e-6)
    assert momentum(after) == pytest.approx(momentum(before), rel=1e-5)
    np.testing.assert_array_equal(stopped(rig(), after), after)


@pytest.mark.parametrize(
    ("x", "angle", "spin", "control", "paid"),
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
def test_rewards_by_hand(x, angle, spin, control, paid):
    motion = np.array([x, 7.0, angle, spin], "float32")
    assert paid_for(motion, np.float32(control)) == pytest.approx(paid, abs=1e-6)


def test_random_episodes():
    world = SwingUp(limit=50)

    def play(key):
        state, first = world.reset(world.spec.params, key)
        actions = jax.random.uniform(key, (50, 1), minval=-1)
        return first, jax.lax.scan(lambda s, a: world.step(s, a, key), state, actions)[1]

    first, steps = jax.tree.map(np.asarray, jax.jit(jax.vmap(play))(jax.random.split(jax.random.key(0), 16)))
    np.testing.assert_allclose(first.observation, np.tile([0, 0, -1, 0, 0], (16, 1)), atol=0.051)
    assert len(np.unique(first.observation, axis=0)) == 16
    np.testing.assert_allclose((steps.observation[..., 2:4] ** 2).sum(-1), 1, atol=1e-5)
    assert steps.reward.min() >= 0 and 0.01 < steps.reward.max() <= 1
    assert steps.observation[..., 2].max() > 0  # some force reaches the pole
    assert not steps.terminated.any()
    assert steps.truncated.tolist() == [[False] * 49 + [True]] * 16


def test_parameters_travel_with_the_episode():
    stacked = jax.tree.map(lambda *x: np.stack(x), rig(), rig(force=0.0), rig(cart_mass=1e6))

    @jax.jit
    def pushed(parameters):
        states, _ = jax.vmap(SwingUp().reset, (0, None))(parameters, jax.random.key(0))
        moved, _ = jax.vmap(SwingUp().step, (0, None, None))(states, jnp.ones(1), jax.random.key(1))
        return moved.motion[:, 1] - states.motion[:, 1]

    gained = np.asarray(pushed(stacked))
    assert gained[0] == pytest.approx(FORCE / (M + m) * 0.05, rel=0.1)
    assert np.abs(gained[1:]).max() < 0.02


def test_no_action_pushes_harder_than_the_bounds():
    state, _ = start(rig(), jax.random.key(0))
    step = jax.jit(SwingUp().step)
    far, near = (step(state, np.full(1, a, "float32"), jax.random.key(0)) for a in (9.0, 1.0))
    jax.tree.map(np.testing.assert_array_equal, far, near)
