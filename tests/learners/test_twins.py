"""What a paper's remedies are worth nothing without: taken away one by one, the method is the one it came from."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from cases import CASES

from thespis.core.contracts import Mode
from thespis.core.laws import as_numpy
from thespis.curricula.fixed import Fixed
from thespis.feedback.environment import EnvironmentReward
from thespis.loops.compiled import CompiledLoop
from thespis.loops.parts import Parts
from thespis.methods.online.td3 import TD3


def learnt(method):
    loop = CompiledLoop(Parts(method, EnvironmentReward(), Fixed()), CASES["ddpg"].world, 3, [0, 3], 1000)
    states = loop.learner(loop.advance(loop.init(), 12)).method
    policies = jax.vmap(lambda state: method.policy(state, Mode.EXPLOIT))(states)
    return as_numpy(policies.actor)


@pytest.mark.slow
def test_td3_without_its_remedies_is_ddpg():
    ddpg = CASES["ddpg"].method
    bare = TD3(
        learning_rate=ddpg.learning_rate, critics=1, smoothing=0.0, actor_every=1, hidden=ddpg.hidden, feed=ddpg.feed
    )
    one, other = learnt(ddpg), learnt(bare)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), one, other)
    with_delay = learnt(dataclasses.replace(bare, actor_every=2))
    apart = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), one, with_delay)
    assert max(jax.tree.leaves(apart)) > 1e-4
