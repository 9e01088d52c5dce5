"""Sequence RL with temporal recall (SRL): acting, values and gradients against loops, and a known optimum."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import synthetic_batches
from method_cases import CASES
from small_envs import Walk

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import EnvSpec, View
from thespis.core.spaces import Box, Discrete
from thespis.learners.optim.optimizers import Adam
from thespis.papers.srl.method import SRL
from thespis.papers.srl.temporal_recall import (
    DynamicsModel,
    SequenceActor,
    SequencePolicy,
    TemporalRecall,
    fit_dynamics,
)

KEY = synthetic_batches.quick_key(0)
LINE = EnvSpec("line", Box((1,)), Box((1,), -1.0, 1.0))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gru_cell(cell, x, h):
    """The gated recurrent unit (Cho et al., 2014), in numpy and float64."""
    weights = [np.asarray(w, float) for w in (cell.weight_ih, cell.bias, cell.weight_hh, cell.bias_n)]
    weight_ih, bias, weight_hh, bias_n = weights
    reset_x, update_x, new_x = np.split(weight_ih @ x + bias, 3)
    reset_h, update_h, new_h = np.split(weight_hh @ h, 3)
    reset, update = sigmoid(reset_x + reset_h), sigmoid(update_x + update_h)
    new = np.tanh(new_x + reset * (new_h + bias_n))
    return new + update * (h - new)


ENCODE = jax.jit(lambda actor, view: actor.encode(view))


def expected_actions(actor, obs, previous, length):
    """The modes of an action sequence, in numpy."""
    hidden = np.asarray(ENCODE(actor, View(obs)), float)
    for _ in range(length):
        hidden = gru_cell(actor.cell, previous, hidden)
        mean = hidden @ np.asarray(actor.head.out.weight, float) + np.asarray(actor.head.out.bias, float)
        previous = np.tanh(mean[: len(mean) // 2])
        yield previous


def test_actor_plays_its_sequence_without_new_observations():
    actor = jax.jit(lambda key: SequenceActor(Walk().spec, (7, 5), key))(KEY)

    @jax.jit
    def policy(actor, memory, obs):
        return SequencePolicy(actor, (), jnp.array(False), Mode.EXPLOIT, 3)(memory, obs, KEY)

    memory, previous = jax.jit(first_memory)(actor), np.zeros(2)
    observations = np.random.default_rng(0).normal(size=(7, 3)).astype("float32")
    for t, obs in enumerate(observations):
        if t % 3 == 0:
            expected = expected_actions(actor, obs, previous, 3)
        action, memory = policy(actor, memory, View(obs))
        previous = next(expected)
        np.testing.assert_allclose(action, previous, atol=1e-5)
    assert int(memory.steps_left) == 2


def first_memory(actor):
    policy = SequencePolicy(actor, (), jnp.array(False), Mode.EXPLOIT, 3)
    return jax.tree.map(lambda x: x[0], policy.init_memory(1))


def test_new_episodes_start_a_new_sequence():
    method = SRL(hidden_sizes=(8,), model_hidden_sizes=(8,), action_sequence_length=4)

    @jax.jit
    def act_twice(key):
        policy = SequencePolicy(SequenceActor(Walk().spec, (8,), key), (), jnp.array(False), Mode.EXPLOIT, 4)
        views = View(jnp.ones((2, 3)))
        _, memory, first = method.act(policy, method.init_memory(policy, 2), views, key)
        partly_reset = jax.tree.map(lambda new, old: jnp.stack([new[0], old[1]]), method.init_memory(policy, 2), memory)
        _, next_memory, extras = method.act(policy, partly_reset, views, key)
        return memory, first, partly_reset, next_memory, extras

    memory, first, partly_reset, next_memory, extras = jax.tree.map(np.asarray, act_twice(KEY))
    np.testing.assert_array_equal(first["previous"], 0.0)
    assert next_memory.steps_left.tolist() == [3, 2]
    np.testing.assert_array_equal(extras["previous"], partly_reset.previous_action)
    np.testing.assert_array_equal(extras["previous"][1], memory.previous_action[1])


def quadratic_value(obs, actions):
    """Negative squared position after the action, which is added to the position."""
    return -jnp.sum((obs + actions) ** 2, axis=-1)


class ExactDynamics(DynamicsModel):
    """The exact dynamics of the line."""

    def __call__(self, observation, action):
        return observation + action


def exact_dynamics() -> ExactDynamics:
    return ExactDynamics(LINE, (1,), KEY)


@functools.cache
def trained_actions(use_predicted_states, steps=400):
    """Start positions and the trained actor's sequences of three actions."""
    adam = Adam(1e-2)

    @jax.jit
    def train(key):
        recall, actor = (
            TemporalRecall(quadratic_value, exact_dynamics(), jnp.zeros(()), 3, use_predicted_states),
            SequenceActor(LINE, (16, 16), key),
        )

        def step(carry, step_key):
            actor, opt = carry
            start_key, step_key = jax.random.split(step_key)
            views = View(jax.random.uniform(start_key, (32, 1), minval=-0.8, maxval=0.8))
            results = recall.actor_step(adam, actor, opt, views, jnp.zeros((32, 1)), jax.random.split(step_key, 32))
            return results[:2], None

        return jax.lax.scan(step, (actor, adam.init(actor)), jax.random.split(key, steps))[0][0]

    actor = train(KEY)
    starts = np.linspace(-0.6, 0.6, 5)[:, None]
    return starts, np.array(
        [list(expected_actions(actor, start.astype("float32"), np.zeros(1), 3)) for start in starts]
    )[..., 0]


@pytest.mark.long
def test_temporal_recall_learns_the_optimal_sequence():
    """The best sequence from ``x`` is ``-x, 0, 0``: later actions are evaluated at the predicted states."""
    starts, actions = trained_actions(True)
    np.testing.assert_allclose(actions, starts * np.array([[-1.0, 0.0, 0.0]]), atol=0.08)


@pytest.mark.slow
def test_without_predicted_states_actions_repeat():
    starts, actions = trained_actions(False)
    np.testing.assert_allclose(actions, np.repeat(-starts, 3, axis=1), atol=0.08)


@pytest.mark.long
def test_soft_values_match_a_loop_without_model_gradients():
    def compare(actor, key):
        view, previous = View(jnp.array([0.4])), jnp.array([0.2])
        recall = TemporalRecall(quadratic_value, exact_dynamics(), jnp.array(0.3), 3)
        values, _ = recall.soft_values(actor, view, previous, key)

        def loop_values(actor, fixed_states=None):
            hidden, action, obs, values, states = actor.encode(view), previous, view.observation, [], []
            for j, k in enumerate(jax.random.split(key, 3)):
                distribution, hidden = actor.step(hidden, action)
                action, log_prob = distribution.sample_with_log_prob(k)
                states.append(obs)
                state = obs if fixed_states is None else fixed_states[j]
                values.append(-jnp.sum((state + action) ** 2) - 0.3 * log_prob)
                obs = obs + action
            return jnp.stack(values), states

        def gradient_of(value):
            return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(jax.grad(value)(actor))])

        expected, fixed_states = loop_values(actor)
        gradient = gradient_of(lambda a: jnp.sum(recall.soft_values(a, view, previous, key)[0]))
        fixed_gradient, full_gradient = (
            gradient_of(lambda a, states=states: jnp.sum(loop_values(a, states)[0])) for states in (fixed_states, None)
        )
        return values, expected, gradient, fixed_gradient, full_gradient

    actor = jax.jit(lambda key: SequenceActor(LINE, (6, 6), key))(KEY)
    values, expected, gradient, fixed_gradient, full_gradient = jax.tree.map(
        np.asarray, jax.jit(compare)(actor, synthetic_batches.quick_key(3))
    )
    np.testing.assert_allclose(values, expected, atol=1e-5)
    np.testing.assert_allclose(gradient, fixed_gradient, atol=1e-4)
    assert np.abs(gradient - full_gradient).max() > 0.05


@pytest.mark.long
def test_dynamics_model_fits_next_observations():
    rng = np.random.default_rng(0)
    obs, actions = (rng.uniform(-1, 1, (256, n)).astype("float32") for n in (3, 2))
    next_obs = obs @ rng.normal(size=(3, 3)).astype("float32") + actions @ np.ones((2, 3), "float32")
    adam = Adam(1e-2)

    @jax.jit
    def fit(key, obs, actions, next_obs):
        model = DynamicsModel(Walk().spec, (32,), key)
        opt = adam.init(model)
        predictions = jax.vmap(model)(obs[:4], actions[:4])
        first_error = fit_dynamics(adam, model, opt, obs[:4], actions[:4], next_obs[:4])[2]

        def step(carry, _):
            model, opt, error = fit_dynamics(adam, *carry, obs, actions, next_obs)
            return (model, opt), error

        return predictions, first_error, jax.lax.scan(step, (model, opt), None, 500)[1]

    predictions, error, errors = jax.tree.map(np.asarray, fit(KEY, obs, actions, next_obs))
    assert error == pytest.approx(np.mean((predictions - next_obs[:4]) ** 2), 1e-5)
    assert errors[-1] < 0.02 * errors[0]


@pytest.mark.slow
def test_actor_is_updated_every_policy_delay_updates():
    method = dataclasses.replace(CASES["srl"].method, policy_delay=3)
    state = method.init(Walk().spec, KEY)
    batch = synthetic_batches.collect_batch(
        method, state, random_transitions(Walk().spec, np.random.default_rng(0), 1, 6), KEY
    )
    is_updated = []
    for index in range(3):
        indexed_batch = dataclasses.replace(batch, update_index=jnp.array(index, "int32"))
        updated, _ = jax.jit(method.update)(state, indexed_batch, KEY)
        is_updated.append(bool(jnp.any(updated.actor.hidden_init.weight != state.actor.hidden_init.weight)))
        assert jnp.any(updated.dynamics.out.weight != state.dynamics.out.weight)
    assert is_updated == [False, False, True]


def test_unsupported_settings_are_rejected():
    with pytest.raises(UserError, match="use sac"):
        jax.eval_shape(lambda: SRL().init(Walk(Discrete(4)).spec, KEY))
    with pytest.raises(UserError, match="dynamics model"):
        jax.eval_shape(lambda: SRL().init(Walk(observation=Discrete(3)).spec, KEY))
    with pytest.raises(UserError, match="feed"):
        jax.eval_shape(lambda: SRL(feed=dataclasses.replace(SRL().feed, sequence_length=2)).init(Walk().spec, KEY))
