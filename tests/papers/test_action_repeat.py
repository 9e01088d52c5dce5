"""Action repeat: rewards, observations and ends, against explicit steps of the wrapped environment."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_envs import Walk

from thespis.core.laws.components import check_environment
from thespis.envs.compiled.swing_up import SwingUp
from thespis.envs.registry import make_compiled
from thespis.papers.srl.envs import ActionRepeat


def test_contract():
    check_environment(ActionRepeat(SwingUp(time_limit=7), 3))
    assert ActionRepeat(SwingUp(time_limit=7), 3).spec.time_limit == 3


@pytest.mark.parametrize("num_repeats", [1, 3, 4])
def test_step_repeats_the_action_until_the_episode_ends(num_repeats):
    env, repeated = Walk(limit=5), ActionRepeat(Walk(limit=5), num_repeats)
    action, ends = jnp.array([0.4, -0.1]), 0
    env_step, repeated_step = jax.jit(env.step), jax.jit(repeated.step)
    for seed in range(6):
        state, _ = repeated_state, _ = env.reset(env.spec.params, jax.random.key(seed))
        for tick in range(5):
            key, reward = jax.random.key(10 * tick + seed), 0.0
            repeated_state, result = repeated_step(repeated_state, action, key)
            for step_key in jax.random.split(key, num_repeats):
                state, timestep = env_step(state, action, step_key)
                reward += float(timestep.reward)
                if timestep.terminated or timestep.truncated:
                    break
            assert result.reward == pytest.approx(reward, abs=1e-5)
            np.testing.assert_allclose(result.observation, timestep.observation, rtol=1e-6)
            assert (bool(result.terminated), bool(result.truncated)) == (
                bool(timestep.terminated),
                bool(timestep.truncated),
            )
            if timestep.terminated or timestep.truncated:
                ends += 1
                break
    assert ends == 6


def test_registry_names():
    for name, limit in (("PENDULUM_REPEAT_4", 50), ("SWING_UP_REPEAT_4", 50)):
        assert make_compiled(f"thespis.papers.srl.envs:{name}").spec.time_limit == limit
