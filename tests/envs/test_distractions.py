"""Wrappers that make critics err: noise on rewards, and dimensions of the action without effect."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.core.laws.components import check_environment
from thespis.envs.compiled.dummy_actions import DummyActions
from thespis.envs.compiled.noisy_reward import NoisyReward
from thespis.envs.compiled.swing_up import SwingUp
from thespis.envs.registry import make_compiled

BOTH = NoisyReward(DummyActions(SwingUp(), 3), 0.5)


def test_contract():
    check_environment(BOTH, num_steps=20)
    assert BOTH.spec.action_space.shape == (4,) and BOTH.spec.return_bounds is None


def test_noise_has_its_mean_and_deviation_and_nothing_else_changes():
    plain, noisy = SwingUp(), NoisyReward(SwingUp(), 0.5)
    state, _ = plain.reset(plain.spec.params, jax.random.key(0))
    action = jnp.array([0.3])
    keys = jax.random.split(jax.random.key(1), 4_000)
    after, step = jax.jit(jax.vmap(lambda key: noisy.step(state, action, key)))(keys)
    expected_state, expected = plain.step(state, action, keys[0])
    np.testing.assert_allclose(
        step.observation, jnp.broadcast_to(expected.observation, step.observation.shape), rtol=1e-5
    )
    assert jax.tree.structure(after) == jax.tree.structure(expected_state)
    noise = np.asarray(step.reward - expected.reward)
    assert abs(noise.mean()) < 4 * 0.5 / 4_000**0.5 and noise.std() == pytest.approx(0.5, rel=0.05)


def test_dummies_do_nothing_and_the_rest_does_what_it_did():
    plain, padded = SwingUp(), DummyActions(SwingUp(), 3)
    state, _ = plain.reset(plain.spec.params, jax.random.key(0))
    key = jax.random.key(2)
    expected = plain.step(state, jnp.array([0.7]), key)
    for rest in ([0.0, 0.0, 0.0], [1.0, -1.0, 0.5]):
        found = padded.step(state, jnp.array([0.7, *rest]), key)
        for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(x, y)


def test_other_actions_are_refused():
    for env in ("gymnax:CartPole-v1", "gymnax:Pendulum-v1"):
        with pytest.raises(UserError, match=r"a vector in \[-1, 1\]"):
            DummyActions(make_compiled(env))
