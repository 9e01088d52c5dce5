"""Episode statistics that the compiled loop passes to a curriculum: for the episode and for every agent."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from method_cases import KUHN, SMALL
from small_envs import Walk

from thespis.core.records import EpisodeStats, Report
from thespis.core.spaces import Discrete
from thespis.curricula.fixed import FixedCurriculum
from thespis.data.feeds import Rollouts
from thespis.feedback.environment import EnvironmentReward
from thespis.learners.multi_agent.independent_learners import IndependentLearners
from thespis.methods.online.a2c import A2C
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components

PLAYER = A2C(hidden_sizes=SMALL, feed=Rollouts(12, num_envs=4))


class RecordingCurriculum(eqx.Module):
    """A fixed curriculum whose state holds the last episode statistics."""

    name = "recording"
    citations = ()
    needs_critique = draws_per_rollout = False

    def init(self, spec, key):
        blank, n = jnp.zeros((12, 4)), jnp.zeros((12, 4), "int32")
        agent_returns = {group.name: jnp.zeros((12, 4, group.num_agents)) for group in spec.groups} or None
        return jax.tree.map(jnp.asarray, spec.params), EpisodeStats(
            blank > 0, blank, n, (), agent_returns=agent_returns
        )

    def draw(self, state, key, n):
        return FixedCurriculum().draw(state[0], key, n)

    def update(self, state, rollout, critique, outcomes, key):
        stats = EpisodeStats(
            outcomes.done, outcomes.returns, outcomes.lengths, (), agent_returns=outcomes.agent_returns
        )
        return (state[0], stats), Report({})


def recorded_stats(method, env, blocks):
    loop = CompiledLoop(Components(method, EnvironmentReward(), RecordingCurriculum()), env, 4, [0], 1000)
    return jax.tree.map(lambda x: np.asarray(x)[0], loop.advance(loop.init(), blocks).learner.curriculum[1])


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [1, 3])
def test_returns_of_every_agent(blocks):
    """Kuhn poker is zero-sum, and the return of an episode is that of the first player."""
    stats = recorded_stats(IndependentLearners(PLAYER), KUHN, blocks)
    agent_returns, ended = stats.agent_returns["seats"], stats.done
    assert ended.sum() > 4
    np.testing.assert_array_equal(agent_returns[..., 0], stats.returns)
    np.testing.assert_array_equal(agent_returns[ended].sum(axis=-1), 0)
    assert set(np.abs(agent_returns[ended]).ravel()) <= {1, 2} and not agent_returns[~ended].any()


@pytest.mark.slow
def test_single_agent_has_no_agent_returns():
    assert recorded_stats(PLAYER, Walk(Discrete(4), legal=True), 1).agent_returns is None
