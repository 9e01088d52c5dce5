"""What only critics may see travels with the transitions, through replay and rollouts, and never reaches ``act``."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import Walk

import thespis
from thespis.core.errors import UserError
from thespis.core.feeds import Replay
from thespis.core.spaces import Box
from thespis.curricula.fixed import Fixed
from thespis.feedback.environment import EnvironmentReward
from thespis.loops.compiled import CompiledLoop
from thespis.loops.parts import Parts
from thespis.methods.online.ddpg import DDPG


class Told(eqx.Module):
    """A walk that shows critics the number of steps made."""

    walk: Walk = Walk()

    @property
    def spec(self):
        return dataclasses.replace(self.walk.spec, privileged=Box(()))

    def reset(self, params, key):
        state, answer = self.walk.reset(params, key)
        return state, self._tell(state, answer)

    def step(self, state, action, key):
        state, answer = self.walk.step(state, action, key)
        return state, self._tell(state, answer)

    def _tell(self, state, answer):
        told = state[0].step.astype("float32")
        return eqx.tree_at(lambda a: a.privileged, answer, told, is_leaf=lambda x: x is None)


METHOD = DDPG(hidden=(4,), feed=Replay(capacity=24, batch=4, warmup=8, every=2, envs=2))


def test_replay_keeps_what_critics_may_see():
    loop = CompiledLoop(Parts(METHOD, EnvironmentReward(), Fixed()), Told(), 2, [0], 24)
    carry = loop.advance(loop.init(), 6)
    steps = carry.learner.store.steps
    ended = jax.device_get(steps.first)
    assert float(jnp.abs(steps.next_privileged - steps.privileged - 1).max()) == 0  # one step further, across no end
    assert ended.any() and float(jnp.where(ended, steps.privileged, 0).max()) == 0


@pytest.mark.slow
def test_final_scores_judge_with_it(tmp_path):
    run = thespis.train(METHOD, env=Told(), steps=24, episodes=2, out=tmp_path / "run")
    found = run.final["calibration"]
    assert len(found["predicted"]) > 0 and np.all(np.isfinite(found["predicted"]))
    steps = run.play(2, keep=2).kept[0][0]
    np.testing.assert_array_equal(steps.privileged, np.arange(len(steps.reward)))
    np.testing.assert_array_equal(steps.next_privileged, steps.privileged + 1)


def test_the_host_loop_refuses_it():
    with pytest.raises(UserError, match="compiled loop"):
        thespis.train(METHOD, env=Told(), steps=24, loop="host")
