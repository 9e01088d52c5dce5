"""Policy averaging in games: MMD (averaged parameters) and NFSP (averaged play), against hand sums and Kuhn poker."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import synthetic_batches
from method_cases import KUHN

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import Batch
from thespis.curricula.fixed import FixedCurriculum
from thespis.data.feeds import Rollouts
from thespis.evaluation.exploitability import evaluate_method
from thespis.feedback.environment import EnvironmentReward
from thespis.learners.multi_agent.independent_learners import IndependentLearners, agent_spec
from thespis.learners.offline.behavior_cloning import BehaviorCloning
from thespis.methods.games.mmd import MMD, default_ppo
from thespis.methods.games.nfsp import NFSP
from thespis.methods.online.ppo import PPO
from thespis.nets.body import GRU
from thespis.runtime.keys import seed_key
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components

PLAYER_SPEC = agent_spec(KUHN.spec, KUHN.spec.groups[0])


@pytest.mark.long
def test_average_weights_late_policies_then_decays():
    method = MMD(dataclasses.replace(default_ppo(), hidden_sizes=(8,), num_epochs=1, minibatch_size=12), ema_decay=0.5)
    state = synthetic_batches.init_state(method, PLAYER_SPEC)
    steps = random_transitions(PLAYER_SPEC, np.random.default_rng(0), 4, 3)
    memory = method.init_memory(method.policy(state, Mode.EXPLORE), 3)
    extras = {"log_prob": -jnp.ones((4, 3))}
    steps = type(steps)(**{**vars(steps), "extras": extras})
    update, policies = jax.jit(method.update), [method.policy(state, Mode.EXPLORE)]
    for index in range(4):
        state, _ = update(state, Batch(steps, jnp.ones((4, 3), bool), memory, jnp.int32(index)), seed_key(index))
        policies.append(method.policy(state, Mode.EXPLORE))
    weights = (2, 6, 12, 20)  # n (n + 1)
    expected = jax.tree.map(lambda *x: sum(w * y for w, y in zip(weights, x, strict=False)) / 40, *policies)
    expected = jax.tree.map(lambda old, new: 0.5 * old + 0.5 * new, expected, policies[4])
    for mode in (Mode.SAMPLE, Mode.EXPLOIT):
        averaged = method.policy(state, mode)
        assert averaged.mode is mode
        for a, b in zip(jax.tree.leaves(averaged), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def batch_of(method, state, index: int = 0, reward=None) -> Batch:
    """A random rollout with the latest policy's log-probabilities of its actions."""
    steps = random_transitions(PLAYER_SPEC, np.random.default_rng(index), 4, 3)
    policy = method.policy(state, Mode.EXPLORE)
    memory = method.init_memory(policy, 3)
    extras = {"log_prob": action_log_probs(method, policy, steps)}
    steps = type(steps)(**{**vars(steps), "extras": extras} | ({} if reward is None else {"reward": reward}))
    return Batch(steps, jnp.ones((4, 3), bool), memory, jnp.int32(index))


def action_log_probs(method, policy, steps):
    """Log-probability of each action, from the network's own logits."""

    def log_prob(view, action):
        return policy.network.action_distribution(jax.tree.map(lambda x: x[0], policy.network.init_memory(1)), view)[
            0
        ].log_prob(action)

    return jax.vmap(jax.vmap(log_prob))(steps.view, steps.action)


@pytest.mark.long
def test_magnet_penalizes_divergence_from_the_average():
    """An update equals one without a magnet on rewards from which each action's divergence penalty is subtracted."""
    ppo = dataclasses.replace(default_ppo(), hidden_sizes=(8,), learning_rate=0.05, num_epochs=1, minibatch_size=12)
    with_magnet, without_magnet = MMD(ppo, magnet_coef=0.7), MMD(ppo, magnet_coef=None)
    start, update = synthetic_batches.init_state(without_magnet, PLAYER_SPEC), jax.jit(without_magnet.update)
    state, _ = update(start, batch_of(without_magnet, start), seed_key(1))
    batch = batch_of(without_magnet, state, 1)
    log_average = action_log_probs(without_magnet, without_magnet.policy(state, Mode.SAMPLE), batch.steps)
    cost = 0.7 * (batch.steps.extras["log_prob"] - log_average)
    assert float(jnp.abs(cost).max()) > 1e-4
    expected, _ = update(state, batch_of(without_magnet, state, 1, batch.steps.reward - cost), seed_key(2))
    actual, _ = jax.jit(with_magnet.update)(state, batch, seed_key(2))
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    unpenalized, _ = update(state, batch, seed_key(2))
    assert max(np.abs(a - b).max() for a, b in zip(*map(jax.tree.leaves, (actual, unpenalized)), strict=True)) > 1e-3


def test_magnet_is_rejected_with_memory():
    method = MMD(dataclasses.replace(default_ppo(), hidden_sizes=(8,), num_epochs=1, minibatch_size=12, memory=GRU(4)))
    state = synthetic_batches.init_state(method, PLAYER_SPEC)
    steps = random_transitions(PLAYER_SPEC, np.random.default_rng(0), 4, 3)
    memory = method.init_memory(method.policy(state, Mode.EXPLORE), 3)
    with pytest.raises(UserError, match="magnet_coef=none"):
        method.update(state, Batch(steps, jnp.ones((4, 3), bool), memory, jnp.int32(0)), seed_key(1))


@pytest.mark.slow
def test_nfsp_approaches_equilibrium_in_kuhn_poker():
    method = IndependentLearners(NFSP(reservoir_size=50_000))
    loop = CompiledLoop(Components(method, EnvironmentReward(), FixedCurriculum()), KUHN, 64, [0, 1], 10**7)
    states = loop.learner_state(loop.advance(loop.init(), 500)).method
    worst = max(result.exploitability for result in evaluate_method(method, states, KUHN.game))
    assert worst < 0.25  # random play: 0.46


@pytest.mark.slow
def test_nfsp_stores_only_best_responses_and_plays_the_average():
    """One policy plays a whole episode; episodes of the average policy are neither stored nor learned from."""
    method = NFSP(
        PPO(hidden_sizes=(8,), num_epochs=1, minibatch_size=12),
        BehaviorCloning(hidden_sizes=(8,)),
        anticipatory_param=0.5,
        reservoir_size=100,
    )
    state = synthetic_batches.init_state(method, PLAYER_SPEC)
    explore, average = method.policy(state, Mode.EXPLORE), method.policy(state, Mode.SAMPLE)
    memory, best_response_flags = method.init_memory(explore, 400), []
    for i in range(3):
        view = jax.tree.map(jnp.asarray, random_transitions(PLAYER_SPEC, np.random.default_rng(i), 1, 400).view)
        _, memory, extras = method.act(explore, memory, jax.tree.map(lambda x: x[0], view), seed_key(i))
        best_response_flags.append(np.asarray(extras["best"]))
    np.testing.assert_array_equal(best_response_flags[0], best_response_flags[1])
    np.testing.assert_array_equal(best_response_flags[0], best_response_flags[2])
    assert 140 < best_response_flags[0].sum() < 260
    assert method.init_memory(average, 3) == ()
    steps = random_transitions(PLAYER_SPEC, np.random.default_rng(0), 4, 3)
    is_best_response = np.broadcast_to([True, False, False], (4, 3))
    extras = {"best": is_best_response, "own": {"log_prob": -jnp.ones((4, 3))}}
    batch = Batch(
        type(steps)(**{**vars(steps), "extras": extras}),
        jnp.ones((4, 3), bool),
        method.init_memory(explore, 3),
        jnp.int32(0),
    )
    update = jax.jit(method.update)
    updated, _ = update(state, jax.tree.map(jnp.asarray, batch), seed_key(1))
    assert int(updated.reservoir.num_seen) == 4
    np.testing.assert_array_equal(updated.reservoir.items[1][:4], steps.action[:, 0])
    other_steps = jax.tree.map(
        lambda x: np.where(is_best_response, x, x + 1) if x.dtype == "float32" and x.shape == (4, 3) else x, steps
    )
    batch = Batch(type(steps)(**{**vars(other_steps), "extras": extras}), batch.mask, batch.memory, batch.update_index)
    updated_again, _ = update(state, jax.tree.map(jnp.asarray, batch), seed_key(1))
    for a, b in zip(
        jax.tree.leaves(updated.best_response.network),
        jax.tree.leaves(updated_again.best_response.network),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_mmd_approaches_equilibrium_in_kuhn_poker():
    """Plain policy gradients cycle; MMD ends near an equilibrium (uniform play has exploitability 0.458)."""
    feed = Rollouts(num_steps=32, num_envs=64)
    ppo = dataclasses.replace(default_ppo(), hidden_sizes=(32, 32), minibatch_size=512, feed=feed)
    method = IndependentLearners(MMD(ppo))
    loop = CompiledLoop(Components(method, EnvironmentReward(), FixedCurriculum()), KUHN, 64, [0, 1], 10**7)
    states = loop.learner_state(loop.advance(loop.init(), 600)).method
    assert max(result.exploitability for result in evaluate_method(method, states, KUHN.game)) < 0.05
