"""Privileged observations: passed to critics through replay and rollouts, and never to ``act``."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_envs import Walk

import thespis
from thespis.core.errors import UserError
from thespis.core.spaces import Box
from thespis.curricula.fixed import FixedCurriculum
from thespis.data.feeds import Replay
from thespis.feedback.environment import EnvironmentReward
from thespis.methods.online.ddpg import DDPG
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components


class PrivilegedWalk(eqx.Module):
    """A walk whose privileged observation is the number of steps."""

    walk: Walk = Walk()

    @property
    def spec(self):
        return dataclasses.replace(self.walk.spec, privileged_space=Box(()))

    def reset(self, params, key):
        state, time_step = self.walk.reset(params, key)
        return state, self._with_privileged(state, time_step)

    def step(self, state, action, key):
        state, time_step = self.walk.step(state, action, key)
        return state, self._with_privileged(state, time_step)

    def _with_privileged(self, state, time_step):
        num_steps = state[0].step.astype("float32")
        return eqx.tree_at(lambda a: a.privileged, time_step, num_steps, is_leaf=lambda x: x is None)


METHOD = DDPG(
    hidden_sizes=(4,), feed=Replay(buffer_size=24, batch_size=4, learning_starts=8, update_interval=2, num_envs=2)
)


@pytest.mark.long
def test_replay_stores_privileged_observations():
    loop = CompiledLoop(Components(METHOD, EnvironmentReward(), FixedCurriculum()), PrivilegedWalk(), 2, [0], 24)
    carry = loop.advance(loop.init(), 6)
    steps = carry.learner.store.steps
    ended = jax.device_get(steps.is_first)
    assert (
        float(jnp.abs(steps.next_privileged - steps.privileged - 1).max()) == 0
    )  # one step later, never across an episode end
    assert ended.any() and float(jnp.where(ended, steps.privileged, 0).max()) == 0


@pytest.mark.slow
def test_calibration_uses_privileged_observations(tmp_path):
    run = thespis.train(METHOD, env=PrivilegedWalk(), steps=24, episodes=2, out=tmp_path / "run")
    calibration = run.final_scores["calibration"]
    assert len(calibration["predicted"]) > 0 and np.all(np.isfinite(calibration["predicted"]))
    steps = run.play(2, num_kept=2).episodes[0][0]
    np.testing.assert_array_equal(steps.privileged, np.arange(len(steps.reward)))
    np.testing.assert_array_equal(steps.next_privileged, steps.privileged + 1)


def test_host_loop_refuses_privileged_observations():
    with pytest.raises(UserError, match="compiled loop"):
        thespis.train(METHOD, env=PrivilegedWalk(), steps=24, loop="host")
