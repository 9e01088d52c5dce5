"""Mirror descent policy optimization: minimizers of its penalties, against closed forms for discrete actions."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import synthetic_batches
from method_cases import ppo
from small_envs import Walk

from thespis.actors.distributions import Categorical
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import View
from thespis.core.spaces import Discrete
from thespis.data.feeds import Rollouts
from thespis.learners.off_policy.trust_region import MirrorDescentStep
from thespis.learners.on_policy.method import RolloutEvaluation
from thespis.learners.on_policy.policy_regularizers import MirrorDescentKL
from thespis.papers.mdpo.method import MDPO
from thespis.runtime.keys import seed_key

SPEC, KEY = Walk(Discrete(4)).spec, seed_key(0)
OLD_LOG_PROBS = jnp.log(jnp.array([0.1, 0.2, 0.3, 0.4]))
ADVANTAGE = jnp.array([1.0, -0.5, 0.2, 0.0])


def max_abs_gradient(loss, logits):
    """Largest absolute gradient of a loss at ``logits``."""
    return float(jnp.abs(jax.grad(loss)(logits)).max())


@pytest.mark.long
@pytest.mark.parametrize(("index", "size"), [(0, 0.5), (5, 0.25), (10, 0.005)])
def test_kl_penalty_is_minimized_by_exponential_weights(index, size):
    """The solution is ``pi_k exp(t_k A)``, normalized (Tomar et al. 2022, equation 4)."""
    method = ppo()
    state = synthetic_batches.init_state(method, SPEC)
    collect = jax.jit(lambda state, steps: synthetic_batches.collect_batch(method, state, steps, KEY))
    batch = collect(state, random_transitions(SPEC, np.random.default_rng(0), 2, 3))
    data = method.rollout_processor().compute_advantages(state.network, state.normalizer_states, batch)
    shape = data.value.shape

    def broadcast(logits):
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (*shape, *x.shape)), Categorical(logits))

    def loss(logits):
        evaluation = RolloutEvaluation(broadcast(logits), jnp.zeros(shape), jnp.zeros(()), jnp.zeros(shape))
        penalty = MirrorDescentKL(0.5, 10.0).penalty(
            evaluation, data, lambda: broadcast(OLD_LOG_PROBS), jnp.array(index)
        )
        return penalty - jnp.sum(jax.nn.softmax(logits) * ADVANTAGE)

    assert max_abs_gradient(loss, OLD_LOG_PROBS + size * ADVANTAGE) < 1e-5 / size
    assert max_abs_gradient(loss, OLD_LOG_PROBS) > 0.05


def test_off_policy_penalty_equals_the_authors_loss():
    """``E_pi[c log pi + (lambda - c) log pi_k - Q]``, whose minimizer is known."""
    view, weight, alpha = View(jnp.zeros(3)), 1.5, 0.2

    def loss(logits):
        distribution = Categorical(jax.nn.log_softmax(logits))
        objective = jnp.sum(distribution.probs * (ADVANTAGE - alpha * distribution.log_probs))
        return (
            MirrorDescentStep(weight).penalty(
                lambda _: Categorical(OLD_LOG_PROBS), distribution, view, jnp.array(alpha)
            )
            - objective
        )

    def authors_loss(logits):
        log_probs = np.asarray(jax.nn.log_softmax(logits), np.float64)
        return np.sum(
            np.exp(log_probs)
            * (weight * log_probs + (alpha - weight) * np.asarray(OLD_LOG_PROBS) - np.asarray(ADVANTAGE))
        )

    for logits in jax.random.normal(KEY, (5, 4)):
        assert loss(logits) == pytest.approx(authors_loss(logits), abs=1e-5)
    assert max_abs_gradient(loss, (ADVANTAGE + (weight - alpha) * OLD_LOG_PROBS) / weight) < 1e-5


def test_reference_actor_is_replaced_every_update_interval():
    trust_region, reference, current = MirrorDescentStep(update_interval=3), jnp.array(1.0), jnp.array(2.0)
    references = [float(trust_region.update(reference, current, jnp.array(count))) for count in (1, 2, 3, 4, 6)]
    assert references == [1.0, 1.0, 2.0, 1.0, 2.0]


@pytest.mark.long
def test_separate_critic_steps_descend_the_clipped_loss_and_leave_the_actor():
    """Two full-batch steps of the critic, against Adam by hand; the actor's are those of a loss without a critic."""
    method = MDPO(
        learning_rate=0.01,
        hidden_sizes=(4,),
        obs_normalizer=None,
        reward_normalizer=None,
        num_epochs=2,
        minibatch_size=6,
        critic_epochs=2,
        critic_minibatch_size=6,
        value_clip_range=0.005,
        feed=Rollouts(2, num_envs=3),
    )
    steps = random_transitions(SPEC, np.random.default_rng(0), 2, 3)
    state, batch = synthetic_batches.init_and_batch(method, SPEC, steps)
    updated = jax.jit(method.update)(state, batch, KEY)[0]
    actor_only = dataclasses.replace(method, critic_epochs=0, vf_coef=0.0)
    before = dataclasses.replace(state, opt_state=state.opt_state[0])
    expected = jax.jit(actor_only.update)(before, batch, KEY)[0].network
    for name in ("body", "policy_head"):
        for new, reference in zip(
            *(jax.tree.leaves(getattr(n, name)) for n in (updated.network, expected)), strict=True
        ):
            np.testing.assert_allclose(new, reference, rtol=1e-6, atol=1e-7)

    data = method.rollout_processor().compute_advantages(state.network, state.normalizer_states, batch)
    critic, rest = eqx.partition(state.network.critic, eqx.is_inexact_array)

    def loss(critic):
        network = eqx.tree_at(lambda n: n.critic, state.network, eqx.combine(critic, rest))
        value = network.values(batch.memory, data.view.observation, data.is_first)[0]
        near = jnp.minimum(jnp.maximum(value, data.value - 0.005), data.value + 0.005)
        return jnp.mean(jnp.maximum((value - data.target) ** 2, (near - data.target) ** 2)) / 2

    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(0.01, eps=1e-5))
    opt_state = optimizer.init(critic)
    for _ in range(2):
        updates, opt_state = optimizer.update(jax.grad(loss)(critic), opt_state, critic)
        critic = optax.apply_updates(critic, updates)
    for new, reference in zip(*map(jax.tree.leaves, (updated.network.critic, critic)), strict=True):
        np.testing.assert_allclose(new, reference, rtol=1e-4, atol=1e-6)
