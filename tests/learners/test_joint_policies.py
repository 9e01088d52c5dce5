"""Bayesian joint policies: log-probabilities of acting and learning agree, inactive agents are ignored, edges decay."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from method_cases import CASES
from test_team_methods import init_and_batch, perturb

from thespis.core.laws.assertions import assert_same_bits
from thespis.core.records import Batch
from thespis.learners.on_policy.method import evaluate_rollout
from thespis.papers.bayesian_joint_policy.joint_actor_critic import joint_transitions
from thespis.papers.bayesian_joint_policy.method import LinearEdgeDecay
from thespis.runtime.keys import seed_key

METHOD, SPEC = CASES["bayesian"].method, CASES["bayesian"].env.spec


@pytest.mark.slow
def test_log_probs_agree_and_inactive_agents_change_nothing():
    state, batch = init_and_batch(METHOD, SPEC)
    network, extras = state.method_state.network, batch.steps.extras
    joint = Batch(joint_transitions(network.actor, batch.steps, extras), batch.mask, (), batch.update_index)
    rollout = METHOD.method.rollout_processor().compute_values(network, state.method_state.normalizer_states, joint)
    np.testing.assert_allclose(evaluate_rollout(network, (), rollout).log_prob, extras["log_prob"], atol=1e-5)
    update = jax.jit(METHOD.update)
    bare = dataclasses.replace(batch, steps=dataclasses.replace(batch.steps, extras=()))
    other = perturb(bare, SPEC, True, include_next=False)
    other = dataclasses.replace(other, steps=dataclasses.replace(other.steps, extras=extras))
    assert any((batch.steps.action[n] != other.steps.action[n]).any() for n in ("movers", "x"))
    assert_same_bits(update(state, batch, seed_key(0)), update(state, other, seed_key(0)), "inactive agents")


def test_edges_decay_and_exclude_inactive_agents():
    keep_probs = [float(LinearEdgeDecay(10.0, 30.0).keep_prob(jnp.array(n))) for n in (0, 10, 15, 20, 30, 99)]
    np.testing.assert_allclose(keep_probs, [1.0, 1.0, 0.75, 0.5, 0.0, 0.0])
    _, batch = init_and_batch(METHOD, SPEC)
    alive = np.concatenate([batch.steps.view.alive[name] for name in ("movers", "x")], axis=-1)
    edges = np.asarray(batch.steps.extras["kept"]).reshape(*alive.shape, 3)
    np.testing.assert_array_equal(edges, np.broadcast_to(alive[..., None], edges.shape))
    assert 0 < alive.mean() < 1
