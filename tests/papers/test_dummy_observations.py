"""Dummy observations: the wrapped environment is unchanged, and the dummies are new standard normal numbers."""

import jax
import numpy as np

from thespis.core.laws.components import check_environment
from thespis.envs.compiled.reacher import Reacher
from thespis.papers.adaptive_rr.envs import DummyObservations
from thespis.runtime.keys import fold

ENV, REACHER = DummyObservations(Reacher(time_limit=5), 20), Reacher(time_limit=5)


def test_laws_of_environments():
    check_environment(ENV)


def test_observation_is_that_of_the_environment_with_new_normal_numbers():
    """Two episodes with equal actions, side by side; moments of 4,000 dummies."""

    @jax.jit
    def episode(key):
        key, reset_key = jax.random.split(key)
        states = ENV.reset((), reset_key), REACHER.reset((), fold(reset_key, "env"))

        def step(carry, key):
            (wrapped_state, _), (state, _) = carry
            action = jax.random.uniform(fold(key, "action"), (2,), minval=-1.0, maxval=1.0)
            carry = ENV.step(wrapped_state, action, key), REACHER.step(state, action, fold(key, "env"))
            return carry, (carry[0][1], carry[1][1])

        return jax.lax.scan(step, states, jax.random.split(key, 5))[1]

    wrapped, plain = jax.tree.map(np.asarray, jax.vmap(episode)(jax.random.split(jax.random.key(0), 40)))
    np.testing.assert_array_equal(wrapped.observation["observation"], plain.observation)
    np.testing.assert_array_equal(wrapped.reward, plain.reward)
    np.testing.assert_array_equal(wrapped.truncated, plain.truncated)
    dummies = wrapped.observation["dummies"]
    assert dummies.shape == (40, 5, 20) and len(np.unique(dummies)) > 3_990
    assert abs(dummies.mean()) < 0.06 and abs(dummies.std() - 1) < 0.06
