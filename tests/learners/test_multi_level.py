"""MAC (average reward, multi-level Monte Carlo gradients): gradients and values, against enumeration and algebra."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import synthetic_batches
from small_envs import Walk

from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import Batch, Transition, View
from thespis.core.spaces import Discrete
from thespis.papers.mac.envs import SlowWalk
from thespis.papers.mac.method import (
    MAC,
    AverageRewardParams,
    FixedTrajectoryLength,
    MultiLevelMonteCarlo,
    average_reward_loss,
    gradient_transform,
    make_optimizer,
)

KEY = synthetic_batches.quick_key(0)


def weights(length, steps):
    """Gradient weights of all steps of a trajectory of ``steps`` steps."""
    return np.array([length.weight(jnp.int32(i), jnp.int32(steps)) for i in range(steps)])


@pytest.mark.parametrize("levels", [1, 2, 4])
def test_expected_estimate_is_the_gradient_of_the_longest_trajectory(levels):
    """Exact expectation over all trajectory lengths on one stored sequence of gradients ``g``."""
    g = np.random.default_rng(levels).normal(size=2**levels)
    expected, steps = 0.0, 0.0
    for j in range(1, levels + 1):
        estimate = g[0] + 2**j * (g[: 2**j].mean() - g[: 2 ** (j - 1)].mean())
        assert weights(MultiLevelMonteCarlo(levels), 2**j) @ g[: 2**j] == pytest.approx(estimate)
        expected, steps = expected + 2.0**-j * estimate, steps + 2.0**-j * 2**j
    tail_prob = 2.0**-levels
    expected, steps = expected + tail_prob * weights(MultiLevelMonteCarlo(levels), 1)[0] * g[0], steps + tail_prob
    assert expected == pytest.approx(g.mean())
    assert steps == levels + tail_prob


def test_trajectory_lengths_have_their_probabilities():
    lengths = np.asarray(jax.vmap(MultiLevelMonteCarlo(3).sample_length)(jax.random.split(KEY, 20_000)))
    for steps, probability in ((2, 1 / 2), (4, 1 / 4), (8, 1 / 8), (1, 1 / 8)):
        assert (lengths == steps).mean() == pytest.approx(probability, abs=0.015)
    assert set(lengths) == {1, 2, 4, 8}


def test_fixed_length_averages_the_gradients():
    assert int(FixedTrajectoryLength(5).sample_length(KEY)) == 5
    np.testing.assert_allclose(weights(FixedTrajectoryLength(5), 5), 0.2, rtol=1e-6)


@pytest.mark.parametrize("kind", ["adagrad", "adagrad-norm", "sgd"])
def test_step_sizes_decay_with_accumulated_gradients(kind):
    gradients = np.random.default_rng(0).normal(size=(6, 3))
    gradients[:2] = 0.0  # zero gradients at the start give zero steps, not NaN
    transform, total = gradient_transform(kind, 0.3), np.zeros(3)
    state = transform.init(jnp.zeros(3))
    for g in gradients:
        total += g**2 if kind == "adagrad" else (g**2).sum()
        step, state = transform.update(jnp.asarray(g, "float32"), state)
        expected = g if kind == "sgd" else np.divide(g, np.sqrt(total), out=np.zeros(3), where=total > 0)
        np.testing.assert_allclose(step, -0.3 * expected, rtol=1e-5, atol=1e-7)


@pytest.mark.long
def test_a_trajectory_is_updated_with_its_weighted_gradient_sum():
    """Two environments, trajectories of four and two steps with SGD, against one-step gradients summed by hand."""
    method = MAC(0.1, 0.2, MultiLevelMonteCarlo(2), "sgd", (4,), dataclasses.replace(MAC().feed, num_envs=2))
    spec = Walk(Discrete(3)).spec
    state = jax.jit(lambda: method.init(spec, KEY))()
    update, grad = jax.jit(method.update), jax.jit(jax.grad(average_reward_loss, has_aux=True))
    experience = jax.jit(lambda state, steps: synthetic_batches.collect_batch(method, state, steps, KEY))
    params_history = [state.params]
    for length in (4, 2):
        state = eqx.tree_at(lambda s: s.trajectory_length, state, jnp.int32(length))
        total = jax.tree.map(jnp.zeros_like, state.params)
        for i in range(length):
            steps = random_transitions(spec, np.random.default_rng(10 * length + i), 1, 2)
            batch = experience(state, steps)
            gradient, _ = grad(params_history[-1], batch)
            weight = (i == 0) + (1.0 if i >= length // 2 else -1.0)
            total = jax.tree.map(lambda t, g, w=weight: t + w * g, total, gradient)
            assert jax.tree.all(jax.tree.map(lambda x, y: (x == y).all(), state.params, params_history[-1]))
            state, report = update(state, batch, KEY)
            assert float(report.metrics["length"]) == length
        rates = AverageRewardParams(jax.tree.map(lambda _: 0.1, total.network), jnp.float32(0.2))
        rates = eqx.tree_at(lambda r: r.network.critic, rates, jax.tree.map(lambda _: 0.2, total.network.critic))
        expected = jax.tree.map(lambda x, r, g: x - r * g, params_history[-1], rates, total)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-4, atol=1e-6), state.params, expected)
        params_history.append(state.params)


@pytest.mark.long
def test_a_running_average_reward_takes_the_mean_reward_of_a_trajectory():
    """Trajectories of four and two steps, against a running mean of their mean rewards, whatever their weights."""
    method = MAC(trajectory_length=MultiLevelMonteCarlo(2), hidden_sizes=(4,), average_reward_rate=0.1)
    spec = Walk(Discrete(3)).spec
    state, expected = jax.jit(lambda: method.init(spec, KEY))(), 0.0
    update = jax.jit(method.update)
    for length in (4, 2):
        state = eqx.tree_at(lambda s: s.trajectory_length, state, jnp.int32(length))
        rewards = []
        for i in range(length):
            steps = random_transitions(spec, np.random.default_rng(10 * length + i), 1, 1)
            rewards.append(float(steps.reward[0, 0]))
            state, _ = update(state, synthetic_batches.collect_batch(method, state, steps, KEY), KEY)
        expected = 0.9 * expected + 0.1 * np.mean(rewards)
        assert float(state.params.average_reward) == pytest.approx(expected, rel=1e-4)


def solve_average_reward(transition, mean_reward):
    """Average reward, differential values (up to a constant) and stationary distribution of a Markov chain."""
    n = len(mean_reward)
    stationary = np.linalg.lstsq(np.vstack([transition.T - np.eye(n), np.ones(n)]), np.eye(n + 1)[-1], rcond=None)[0]
    average = stationary @ mean_reward
    values = np.linalg.lstsq(np.eye(n) - transition, mean_reward - average, rcond=None)[0]
    return average, values, stationary


def test_gradient_is_zero_at_the_solution_of_the_chain():
    """With transitions weighted by the stationary distribution the gradient is zero, and nonzero for other values."""
    env = SlowWalk(num_positions=5, stay_prob=0.2, control_strength=0.0)
    transition = np.zeros((5, 5))
    for i in range(5):
        transition[i, i] += 0.2
        for target in (i - 1, i + 1):
            transition[i, np.clip(target, 0, 4)] += 0.4
    mean_reward = transition @ np.array([env.small_reward, 0, 0, 0, 1.0])
    average, values, stationary = solve_average_reward(transition, mean_reward)
    np.testing.assert_allclose(stationary, 0.2)
    network = MAC(hidden_sizes=()).init(env.spec, KEY).params.network
    grad = jax.jit(jax.grad(average_reward_loss, has_aux=True))

    def gradient(values, average):
        """Critic and average-reward gradients over all transitions (from, to), each as often as its probability."""
        network_with_values = eqx.tree_at(
            lambda n: n.critic.out.weight, network, jnp.asarray(values, "float32")[:, None]
        )
        rewards = np.array([env.small_reward, 0, 0, 0, 1.0])
        pairs = [(i, j) for i in range(5) for j in range(5) for _ in range(round(transition[i, j] / 0.2))]
        obs, next_obs = (np.eye(5, dtype="float32")[list(x)][None] for x in zip(*pairs, strict=True))
        false = jnp.zeros((1, len(pairs)), bool)
        reward = jnp.asarray([[rewards[j] for _, j in pairs]], "float32")
        extras = {"log_prob": jnp.zeros(reward.shape)}
        steps = Transition(
            View(obs), jnp.zeros(false.shape, "int32"), reward, false, false, View(next_obs), false, extras
        )
        batch = Batch(steps, ~false, network.init_memory(len(pairs)), jnp.int32(0))
        gradients, _ = grad(AverageRewardParams(network_with_values, jnp.float32(average)), batch)
        return float(abs(gradients.network.critic.out.weight).max()), float(abs(gradients.average_reward))

    assert max(gradient(values, average)) < 1e-6
    assert max(gradient(values + 3.0, average)) < 1e-6  # values are defined up to a constant
    assert gradient(values * 1.1, average)[0] > 1e-3
    assert gradient(values, average + 0.1)[1] > 0.05


def test_termination_has_no_bootstrap_value():
    """Episodes of one step: the TD error is ``r - average - V(s)`` for any last observation."""
    spec = Walk(Discrete(3)).spec
    method = MAC(hidden_sizes=(), feed=dataclasses.replace(MAC().feed, num_envs=4))
    state = synthetic_batches.init_state(method, spec)
    steps = random_transitions(spec, np.random.default_rng(0), 1, 4)
    steps = dataclasses.replace(steps, terminated=jnp.ones((1, 4), bool), truncated=jnp.zeros((1, 4), bool))
    batch = jax.jit(lambda state, steps: synthetic_batches.collect_batch(method, state, steps, KEY))(state, steps)
    params = eqx.tree_at(lambda x: x.average_reward, state.params, jnp.float32(0.3))
    value = jax.vmap(lambda o: params.network.critic((), o)[0])(batch.steps.view.observation[0])
    _, metrics = jax.jit(average_reward_loss)(params, batch)
    expected = np.mean(np.square(np.asarray(steps.reward[0]) - 0.3 - np.asarray(value))) / 2
    assert float(metrics["critic_loss"]) == pytest.approx(expected, rel=1e-4)


def test_actor_and_critic_have_separate_step_sizes():
    params = MAC(hidden_sizes=(3,)).init(Walk(Discrete(3)).spec, KEY).params
    transform = make_optimizer(params, "adagrad-norm", 0.5, 0.25)
    ones = jax.tree.map(jnp.ones_like, params)
    step, _ = transform.update(ones, transform.init(params), params)
    size = lambda tree: np.sqrt(sum(float((x**2).sum()) for x in jax.tree.leaves(tree)))  # noqa: E731
    assert size((step.network.body, step.network.policy_head)) == pytest.approx(0.5)
    assert size(step.network.critic) == pytest.approx(0.25)
    assert size(step.average_reward) == pytest.approx(0.25)
