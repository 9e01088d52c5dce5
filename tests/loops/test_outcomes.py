"""What the compiled loop tells a curriculum of episodes that ended: for the whole, and for every agent."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import KUHN, SMALL
from worlds import Walk

from thespis.core.feeds import Rollouts
from thespis.core.records import Outcomes, Report
from thespis.core.spaces import Discrete
from thespis.curricula.fixed import Fixed
from thespis.feedback.environment import EnvironmentReward
from thespis.learners.crowd import EachAlone
from thespis.loops.compiled import CompiledLoop
from thespis.loops.parts import Parts
from thespis.methods.online.a2c import A2C

PLAYER = A2C(hidden=SMALL, feed=Rollouts(12, envs=4))


class Listening(eqx.Module):
    """Nothing varies; the state holds what was told last."""

    name = "listening"
    citations = ()

    def init(self, spec, key):
        blank, n = jnp.zeros((12, 4)), jnp.zeros((12, 4), "int32")
        each = {group.name: jnp.zeros((12, 4, group.count)) for group in spec.groups} or None
        return jax.tree.map(jnp.asarray, spec.params), Outcomes(blank > 0, blank, n, (), each=each)

    def draw(self, state, key, n):
        return Fixed().draw(state[0], key, n)

    def update(self, state, outcomes, key):
        heard = Outcomes(outcomes.ended, outcomes.returns, outcomes.lengths, (), each=outcomes.each)
        return (state[0], heard), Report({})


def told(method, world, blocks):
    loop = CompiledLoop(Parts(method, EnvironmentReward(), Listening()), world, 4, [0], 1000)
    return jax.tree.map(lambda x: np.asarray(x)[0], loop.advance(loop.init(), blocks).learner.curriculum[1])


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [1, 3])
def test_returns_of_every_agent(blocks):
    """In Kuhn poker, which is what one wins and the other loses, and in which an episode counts for the first."""
    heard = told(EachAlone(PLAYER), KUHN, blocks)
    each, ended = heard.each["seats"], heard.ended
    assert ended.sum() > 4
    np.testing.assert_array_equal(each[..., 0], heard.returns)
    np.testing.assert_array_equal(each[ended].sum(axis=-1), 0)
    assert set(np.abs(each[ended]).ravel()) <= {1, 2} and not each[~ended].any()


@pytest.mark.slow
def test_one_agent_has_none():
    assert told(PLAYER, Walk(Discrete(4), legal=True), 1).each is None
