"""Decentralized policy optimization: penalties and their weights against formulas, and their effect on an update."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import synthetic_batches
from method_cases import SMALL, ppo
from small_envs import Walk

from thespis.core.laws.random_samples import random_transitions
from thespis.core.spaces import Discrete
from thespis.learners.on_policy.method import RolloutEvaluation, evaluate_rollout
from thespis.learners.on_policy.policy_regularizers import SqrtKL
from thespis.papers.decentralized_policy_optimization.method import AdaptiveKLPPO

SPEC = Walk(Discrete(4), legal=True).spec
KEY = synthetic_batches.quick_key(0)
NONE = (), ()
UPDATE_INDEX = jax.device_put(np.int32(0))


def random_experience(method):
    state = synthetic_batches.init_state(method, SPEC)
    sample_batch = jax.jit(lambda state, steps: synthetic_batches.collect_batch(method, state, steps, KEY))
    return state, sample_batch(state, random_transitions(SPEC, np.random.default_rng(0), 8, 3))


def sharpen_policy(network):
    """The network with a policy far from uniform."""
    return eqx.tree_at(lambda n: n.policy_head.out.weight, network, 200.0 * network.policy_head.out.weight)


@pytest.mark.long
def test_penalties_are_means_of_the_kl_and_of_its_root():
    method = ppo()
    state, batch = random_experience(method)
    old_network, new_network = (synthetic_batches.init_state(method, SPEC, i).network for i in range(2))

    @jax.jit
    def penalties(state, batch, old_network, new_network):
        old_network, new_network = sharpen_policy(old_network), sharpen_policy(new_network)
        data = method.rollout_processor().compute_advantages(state.network, state.normalizer_states, batch)
        evaluation = evaluate_rollout(new_network, NONE, data)
        assert isinstance(evaluation, RolloutEvaluation)
        old_policy = lambda: old_network.distributions(NONE, data.view, data.is_first)  # noqa: E731
        values = [
            SqrtKL(*weights).penalty(evaluation, data, old_policy, UPDATE_INDEX) for weights in ((2.0, 0.0), (0.0, 3.0))
        ]
        gradients = jax.grad(
            lambda n: SqrtKL().penalty(evaluate_rollout(n, NONE, data), data, old_policy, UPDATE_INDEX)
        )(old_network)
        return [x.log_probs for x in (old_policy(), evaluation.policy)], values, gradients

    logs, (root, mean), gradients = jax.tree.map(np.asarray, penalties(state, batch, old_network, new_network))
    p, q = (np.exp(x.astype("float64")) for x in logs)
    with np.errstate(divide="ignore", invalid="ignore"):
        kl = np.where(p > 0, p * (np.log(p) - np.log(q)), 0.0).sum(-1)
    assert kl.shape == (8, 3) and (kl > 0.01).mean() > 0.5
    np.testing.assert_allclose(root, 2 * np.sqrt(kl).mean(), rtol=1e-3)
    np.testing.assert_allclose(mean, 3 * kl.mean(), rtol=1e-3)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradients))  # also where the KL is 0


@pytest.mark.parametrize(
    ("divergences", "expected"),
    [((0.05, 0.005), (0.5, 2.0)), ((0.1, 0.01), (1.0, 4.0)), ((0.2, 0.02), (2.0, 8.0)), ((0.05, 0.02), (0.5, 8.0))],
)
def test_weights_are_halved_or_doubled_away_from_the_target(divergences, expected):
    method = AdaptiveKLPPO(target_kl=0.01)
    np.testing.assert_array_equal(method.adapt_weights(jnp.array([1.0, 4.0]), jnp.array(divergences)), expected)


def test_weights_are_clipped_and_zero_weights_stay_zero():
    method, divergences = AdaptiveKLPPO(initial_penalty=SqrtKL(0.0, 2.0)), jnp.array([9.0, 9.0])
    np.testing.assert_array_equal(method.adapt_weights(jnp.array([0.0, 1500.0]), divergences), [0.0, 2000.0])
    np.testing.assert_array_equal(
        method.adapt_weights(jnp.array([0.0, 0.003]), 0 * divergences), [0.0, np.float32(0.002)]
    )


@pytest.mark.long
def test_larger_weights_give_smaller_updates_and_are_adapted():
    base = dataclasses.replace(ppo(), hidden_sizes=SMALL, clip_range=1e9, learning_rate=0.03, num_epochs=8)

    def update(penalty):
        method = AdaptiveKLPPO(base, target_kl=0.01, initial_penalty=penalty)
        state, batch = random_experience(method)
        state, report = jax.jit(method.update)(state, batch, KEY)
        return float(report.metrics["divergence"]), np.asarray(state.penalty_weights)

    (free, raised), (penalized, lowered) = update(SqrtKL(1e-3, 1e-3)), update(SqrtKL(100.0, 100.0))
    assert free > 0.015 and penalized < 0.2 * free
    np.testing.assert_allclose(raised, 2e-3)
    assert lowered[1] == 50.0
