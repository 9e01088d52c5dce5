"""Ablations: TD3 with its additions switched off, against DDPG."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from method_cases import CASES

from thespis.core.contracts import Mode
from thespis.core.laws.assertions import to_numpy
from thespis.curricula.fixed import FixedCurriculum
from thespis.feedback.environment import EnvironmentReward
from thespis.methods.online.td3 import TD3
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components


def trained_actor(method):
    loop = CompiledLoop(Components(method, EnvironmentReward(), FixedCurriculum()), CASES["ddpg"].env, 3, [0, 3], 1000)
    states = loop.learner_state(loop.advance(loop.init(), 12)).method
    policies = jax.vmap(lambda state: method.policy(state, Mode.EXPLOIT))(states)
    return to_numpy(policies.actor)


@pytest.mark.slow
def test_td3_without_its_additions_is_ddpg():
    ddpg = CASES["ddpg"].method
    bare = TD3(
        learning_rate=ddpg.critic_learning_rate,
        num_critics=1,
        target_policy_noise=0.0,
        policy_delay=1,
        hidden_sizes=ddpg.hidden_sizes,
        feed=ddpg.feed,
    )
    ddpg_actor, bare_actor = trained_actor(ddpg), trained_actor(bare)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), ddpg_actor, bare_actor)
    delayed_actor = trained_actor(dataclasses.replace(bare, policy_delay=2))
    difference = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), ddpg_actor, delayed_actor)
    assert max(jax.tree.leaves(difference)) > 1e-4
