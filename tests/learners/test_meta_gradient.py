"""Meta-gradient of the discount (MetaA2C): against finite differences, and the bias of a shared critic by hand."""

from __future__ import annotations

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import synthetic_batches
from small_envs import Walk

from thespis.core.errors import UserError
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import Batch, Transition, View
from thespis.core.spaces import Discrete
from thespis.data.feeds import Rollouts
from thespis.methods.online.a2c import A2C
from thespis.nets.body import GRU
from thespis.papers.outer_value_function_meta_gradient.envs import DelayedChain
from thespis.papers.outer_value_function_meta_gradient.meta_gradient import DiscountBounds, SeparateCritic, SharedCritic
from thespis.papers.outer_value_function_meta_gradient.method import MetaA2C

KEY = synthetic_batches.quick_key(0)
SPEC = Walk(Discrete(3)).spec


def method(outer, **settings):
    inner = A2C(
        hidden_sizes=(5,), discount=0.8, gae_lambda=0.7, ent_coef=0.02, feed=Rollouts(4, num_envs=2), **settings
    )
    return MetaA2C(inner, outer, DiscountBounds(0.5, 0.95), 0.97, 0.9, outer_ent_coef=0.01)


def to_float64(tree):
    return jax.tree.map(lambda x: x.astype("float64") if x.dtype == jnp.float32 else x, tree)


def outer_loss(network, evaluation, weight):
    """The outer actor-critic loss of a network on a rollout, as an explicit sum over steps."""
    total = 0.0
    for time, row in np.ndindex(evaluation.advantage.shape):
        view, action = jax.tree.map(lambda x, at=(time, row): x[at], (evaluation.view, evaluation.action))
        distribution = network.action_distribution(((), ()), view)[0]
        total -= distribution.log_prob(action) * evaluation.advantage[time, row] + weight * distribution.entropy()
    return total / evaluation.advantage.size


@pytest.mark.long
@pytest.mark.parametrize("optimiser", ["adam", pytest.param("rmsprop", marks=pytest.mark.slow)])
@pytest.mark.parametrize("outer", [SharedCritic(), SeparateCritic()], ids=["shared", "separate"])
def test_meta_gradient_matches_finite_differences(outer, optimiser):
    """Central differences in float64: the first rollout's update with the discount logit slightly higher and lower."""
    meta_method = method(outer, optimizer=optimiser, max_grad_norm=0.1)  # so small that clipping matters
    with jax.enable_x64(True):
        state = to_float64(jax.jit(lambda: meta_method.init(SPEC, KEY))())
        random_steps = functools.partial(random_transitions, SPEC, np.random.default_rng(0), 4, 2)
        experience = jax.jit(lambda steps: synthetic_batches.collect_batch(meta_method, state, steps, KEY))
        first, second = (to_float64(experience(random_steps())) for _ in range(2))
        update = jax.jit(lambda state, batch: meta_method.update(state, batch, KEY))
        loss_fn = jax.jit(functools.partial(outer_loss, weight=0.01))
        updated, _ = update(state, first)
        _, report = update(updated, second)
        outer_network = outer.outer_network(updated.network, updated.outer_critic)
        evaluation = meta_method._outer_assessor().compute_advantages(outer_network, updated.normalizer_states, second)
        h = 1e-4
        perturbed = [
            update(dataclasses.replace(state, discount_logit=state.discount_logit + offset), first)[0]
            for offset in (h, -h)
        ]
        slope = (loss_fn(perturbed[0].network, evaluation) - loss_fn(perturbed[1].network, evaluation)) / (2 * h)
    assert abs(float(slope)) > 1e-7
    assert float(report.metrics["meta_gradient"]) == pytest.approx(float(slope), rel=1e-4)


def test_discount_stays_within_its_bounds():
    bounds = DiscountBounds(0.9, 1.0)
    assert float(bounds.from_logit(bounds.to_logit(0.95))) == pytest.approx(0.95)
    assert float(bounds.from_logit(bounds.to_logit(0.99))) == pytest.approx(0.99, abs=1e-6)
    assert float(bounds.from_logit(jnp.float32(-30))) == pytest.approx(0.9)
    assert 0.9 < float(bounds.from_logit(jnp.float32(3))) < 1.0


def optimal_values(env, discount):
    """State values by enumeration, in the order of the one-hot observations; the first is the best choice's value."""
    initial_value = max(env.value(i, 0, discount) for i in range(len(env.delays)))
    return [initial_value] + [
        env.value(i, t, discount) for i in range(len(env.delays)) for t in range(1, env.episode_length + 1)
    ]


@pytest.mark.long
def test_shared_critic_is_biased_towards_immediate_reward():
    """Two choices: reward 1 at once, or 1.1 after ten steps. Critics are exact for their discounts; rollouts: one step.

    With an outer discount of 1 the late choice is worth 1.1 - 1 more, so the meta-gradient should raise the discount
    (under the inner discount the difference is 1.1 * 0.9 ** 9 - 1 = 0.43 - 1). Advantages of the late and of the early
    choice by hand: 1.1 - 1.1 = 0 and 1 - 1.1 = -0.1 with separate critics, 0.43 - 1 and 1 - 1 with a shared critic.
    """
    env = DelayedChain((1, 10), (1.0, 1.1))
    inner = A2C(hidden_sizes=(), discount=0.9, gae_lambda=0.0, ent_coef=0.0, feed=Rollouts(1, num_envs=2))
    meta_gradients = {}
    for outer, discount in ((SharedCritic(), 0.9), (SeparateCritic(), 1.0)):
        meta_method = MetaA2C(inner, outer, DiscountBounds(0.5, 1.0), outer_gae_lambda=0.0)
        state = jax.jit(lambda meta_method=meta_method: meta_method.init(env.spec, KEY))()
        update = jax.jit(meta_method.update)

        def with_optimal_values(critic, discount):
            weight = jnp.asarray(optimal_values(env, discount), "float32")[:, None]
            return eqx.tree_at(lambda c: (c.out.weight, c.out.bias), critic, (weight, jnp.zeros(1)))

        network = eqx.tree_at(lambda n: n.critic, state.network, with_optimal_values(state.network.critic, 0.9))
        network = eqx.tree_at(lambda n: n.policy_head, network, jax.tree.map(jnp.zeros_like, network.policy_head))
        outer_critic = with_optimal_values(network.critic, 1.0) if isinstance(outer, SeparateCritic) else ()
        state = dataclasses.replace(state, network=network, outer_critic=outer_critic)
        observations = jnp.eye(env.spec.observation_space.shape[0])
        obs = jnp.stack([observations[0], observations[0]])[None]
        next_obs = jnp.stack([observations[1], observations[1 + env.episode_length]])[None]
        false, reward = jnp.zeros((1, 2), bool), jnp.array([[1.0, 0.0]])
        extras = {"log_prob": jnp.log(jnp.full((1, 2), 0.5))}
        steps = Transition(View(obs), jnp.array([[0, 1]]), reward, false, false, View(next_obs), ~false, extras)
        batch = Batch(steps, ~false, network.init_memory(2), jnp.int32(0))
        advantage = (
            meta_method._outer_assessor()
            .compute_advantages(outer.outer_network(network, outer_critic), state.normalizer_states, batch)
            .advantage[0]
        )
        best_value = max(env.value(i, 0, discount) for i in range(2))
        late_value = env.value(1, 1, discount)
        np.testing.assert_allclose(advantage, [1.0 - best_value, late_value - best_value], atol=1e-5)
        updated, _ = update(state, batch, KEY)
        _, report = update(updated, batch, KEY)
        meta_gradients[type(outer)] = float(report.metrics["meta_gradient"])
    # gradient descent: raises and lowers the discount
    assert meta_gradients[SeparateCritic] < 0 < meta_gradients[SharedCritic]


@pytest.mark.long
def test_judge_uses_the_discount_of_its_critic():
    steps = jax.tree.map(lambda x: x[:, 0], random_transitions(SPEC, np.random.default_rng(0), 4, 1))
    for outer, discount in ((SharedCritic(), 0.8), (SeparateCritic(), 0.97)):
        meta_method = method(outer)
        state = jax.jit(lambda meta_method=meta_method: meta_method.init(SPEC, KEY))()
        critique = jax.jit(meta_method.judge)(state, jax.tree.map(jnp.asarray, steps))
        assert float(critique.discount) == pytest.approx(discount, rel=1e-5)
        critic = state.outer_critic if isinstance(outer, SeparateCritic) else state.network.critic
        expected = jax.vmap(lambda o, critic=critic: critic((), o)[0])(jnp.asarray(steps.view.observation))
        np.testing.assert_allclose(critique.value, expected, rtol=1e-5)


@pytest.mark.long
def test_tangents_are_zero_where_the_gradient_is_zero():
    """For one-hot states that were not visited: there Adam's square root has no derivative."""
    meta_method = method(SharedCritic(), optimizer="adam")
    env = DelayedChain((1, 2), (1.0, 1.1))
    state = jax.jit(lambda: meta_method.init(env.spec, KEY))()
    steps = jax.tree.map(jnp.asarray, random_transitions(env.spec, np.random.default_rng(0), 4, 2))
    constant_view = View(jnp.zeros_like(steps.view.observation).at[..., 1].set(1.0))
    steps = dataclasses.replace(steps, view=constant_view, next_view=constant_view)
    collect = jax.jit(lambda state, steps: synthetic_batches.collect_batch(meta_method, state, steps, KEY))
    updated, _ = jax.jit(meta_method.update)(state, collect(state, steps), KEY)
    tangents = np.asarray(updated.discount_tangent.body.mlp.layers[0].weight)
    assert np.isfinite(tangents).all() and abs(tangents[1]).max() > 0
    assert (np.delete(tangents, 1, axis=0) == 0).all()


def test_memory_is_rejected():
    with pytest.raises(UserError, match="memory"):
        MetaA2C(A2C(memory=GRU(4))).init(SPEC, KEY)


def test_values_are_judged_under_the_outer_discount():
    assert MetaA2C(outer_discount=0.9).discount == 0.9
