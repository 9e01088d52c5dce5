"""The reacher against complex numbers, scipy and the law of cosines."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from thespis.core.conformance import check_environment
from thespis.envs.compiled.reacher import DRIVE, EFFORT, FRICTION, LINK, Reacher, Reaching, tip
from thespis.envs.registry import compiled, resolve


def held(angle, spin, goal=(0.3, 0.4)):
    return Reaching(*(jnp.asarray(x, "float32") for x in (angle, spin, goal)), jnp.int32(0))


@eqx.filter_jit
def stepped(world, state, action, key):
    return world.step(state, action, key)


def step(world, state, action, seed=0):
    return stepped(world, state, jnp.asarray(action, "float32"), jax.random.key(seed))


def test_the_contract():
    check_environment(Reacher(padding=3, sparse=True, noise=0.2, limit=7), ticks=20)


@pytest.mark.slow
def test_the_contract_by_default():
    check_environment(Reacher())


def test_it_can_be_named():
    name = "thespis.envs.compiled.reacher:Reacher"
    assert resolve(name).kind == "compiled" and compiled(name) == Reacher()


def test_the_tip_is_where_complex_numbers_have_it():
    for a, b in np.random.default_rng(0).uniform(-4, 4, (20, 2)):
        there = LINK * (np.exp(1j * a) + np.exp(1j * (a + b)))
        np.testing.assert_allclose(tip(jnp.array([a, b])), [there.real, there.imag], atol=1e-6)
        assert np.linalg.norm(tip(jnp.array([a, b]))) == pytest.approx(2 * LINK * abs(np.cos(b / 2)), abs=1e-6)


def test_motions_are_those_of_scipy():
    rng, state = np.random.default_rng(0), held([0.3, -2.0], [1.0, -4.0])
    wanted = np.array([0.3, -2.0, 1.0, -4.0])
    for action in rng.uniform(-1.5, 1.5, (30, 2)):
        state, _ = step(Reacher(), state, action)
        push = DRIVE * np.clip(action, -1, 1)
        slope = lambda _, x, push=push: [*x[2:], *(push - FRICTION * x[2:])]  # noqa: E731
        wanted = solve_ivp(slope, (0, 0.05), wanted, rtol=1e-9, atol=1e-9).y[:, -1]
        np.testing.assert_allclose([*state.angle, *state.spin], wanted, atol=2e-5)


def test_a_pose_of_the_closed_form_reaches_the_goal():
    """The elbow's angle follows from the goal's distance by the law of cosines, the shoulder's from its direction."""
    for seed in range(5):
        state, _ = Reacher().reset((), jax.random.key(seed))
        far = float(jnp.linalg.norm(state.goal))
        elbow = np.pi - np.arccos(1 - far**2 / (2 * LINK**2))
        shoulder = np.arctan2(*np.asarray(state.goal)[::-1]) - elbow / 2
        _, found = step(Reacher(), held([shoulder, elbow], [0.0, 0.0], state.goal), [0.0, 0.0])
        assert found.reward == pytest.approx(0.0, abs=1e-5)
        np.testing.assert_allclose(found.observation[-2:], 0.0, atol=1e-5)
        assert step(Reacher(sparse=True), held([shoulder, elbow], [0.0, 0.0], state.goal), [0.0, 0.0])[1].reward == 1.0


def test_rewards_by_hand():
    still = held([0.0, np.pi / 2], [0.0, 0.0], (0.5, 0.38))  # the tip is at (0.5, 0.5)
    assert step(Reacher(), still, [0.0, 0.0])[1].reward == pytest.approx(-0.12, abs=1e-6)
    assert [float(step(Reacher(sparse=True, near=r), still, [0.0, 0.0])[1].reward) for r in (0.11, 0.13)] == [0.0, 1.0]
    pushed, found = step(Reacher(padding=1), still, [1.0, -0.5, 1.0])
    distance = np.linalg.norm(np.array([0.5, 0.38]) - np.asarray(tip(pushed.angle)))
    assert found.reward == pytest.approx(-distance - EFFORT * 1.25, abs=1e-6)
    np.testing.assert_allclose(found.observation[4:6], np.asarray(pushed.spin) / 5, rtol=1e-6)


def test_padding_does_nothing_and_noise_moves_the_joints_alone():
    state, world = held([0.1, 0.2], [0.3, 0.4]), Reacher(padding=2)
    first, other = (step(world, state, [0.5, -0.5, x, -x]) for x in (0.0, 1.0))
    jax.tree.map(np.testing.assert_array_equal, first, other)
    noisy = Reacher(noise=0.3)
    pushed = np.array([step(noisy, state, [0.0, 0.0], seed)[0].spin for seed in range(300)])
    share = (1 - np.exp(-FRICTION * 0.05)) * DRIVE / FRICTION
    np.testing.assert_allclose(pushed.std(0), 0.3 * share, rtol=0.12)
    np.testing.assert_allclose(pushed.mean(0), np.array([0.3, 0.4]) * np.exp(-0.1), atol=0.03)


def test_random_episodes():
    world = Reacher(limit=20)

    def play(key):
        state, first = world.reset((), key)
        actions = jax.random.uniform(key, (20, 2), minval=-1)
        return first, state.goal, jax.lax.scan(lambda s, a: world.step(s, a, key), state, actions)[1]

    first, goal, steps = jax.jit(jax.vmap(play))(jax.random.split(jax.random.key(0), 64))
    far = np.linalg.norm(goal, axis=1)
    assert 0.2 <= far.min() < 0.3 and 0.8 < far.max() <= 0.9
    assert len(np.unique(goal, axis=0)) == 64 and len(np.unique(np.sign(goal), axis=0)) == 4
    np.testing.assert_allclose(first.observation[:, 4:6], 0.0)
    np.testing.assert_allclose((steps.observation[..., :4] ** 2).sum(-1), 2.0, atol=1e-5)
    assert np.abs(steps.observation[..., 4:6]).max() <= 1.0
    assert not steps.terminated.any() and steps.truncated.tolist() == [[False] * 19 + [True]] * 64
