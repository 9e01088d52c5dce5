"""Q functions, state values and ensembles: forward passes against numpy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_envs import BOX, TREE, VECTOR

from thespis.core.errors import UserError
from thespis.core.laws.random_samples import random_value
from thespis.core.records import EnvSpec
from thespis.core.spaces import Discrete, MultiDiscrete
from thespis.critics.value_functions import (
    ContinuousQ,
    DiscreteQ,
    GaussianReturnQ,
    StateValue,
    build_q_function,
    evaluate_ensemble,
    init_ensemble,
)
from thespis.nets.body import GRU, Body
from thespis.nets.mlp import orthogonal

KEY, RNG = jax.random.key(0), np.random.default_rng(0)
DISCRETE, CONTINUOUS = EnvSpec("choices", TREE, Discrete(4)), EnvSpec("pushes", VECTOR, BOX)


def test_discrete_q_indexes_one_forward_pass():
    critic = DiscreteQ(DISCRETE, (8,), KEY)
    o = jax.tree.map(jnp.asarray, random_value(TREE, RNG))
    np.testing.assert_array_equal(critic(o, jnp.array([3, 0])), critic.q_values(o)[jnp.array([3, 0])])


def test_duelling_advantages_have_mean_zero():
    """Wang et al., 2016, eq. 9: the mean over actions is the state's value."""
    critic = DiscreteQ(DISCRETE, (8,), KEY, dueling=True)
    o = jax.tree.map(jnp.asarray, random_value(TREE, RNG))
    features, _ = critic.body((), o)
    assert jnp.mean(critic.q_values(o)) == pytest.approx(float(critic.value_out(features)[0]), abs=1e-6)
    advantages = critic.advantage_out(features)
    np.testing.assert_allclose(
        critic.q_values(o) - jnp.mean(critic.q_values(o)), advantages - jnp.mean(advantages), atol=1e-6
    )


def test_continuous_q_against_numpy():
    critic = ContinuousQ(CONTINUOUS, (5,), KEY)
    o, actions = jnp.array([0.1, 0.2, 0.3]), jnp.array([[0.5, -0.5], [1.0, 0.0]])
    layer = critic.mlp.layers[0]
    for action, value in zip(actions, critic(o, actions), strict=True):
        x = np.concatenate([o, action])
        hidden = np.maximum(x @ np.asarray(layer.weight), 0)
        assert value == pytest.approx(float((hidden @ np.asarray(critic.out.weight))[0]), abs=1e-6)


def test_gaussian_return_q_against_numpy():
    """Of four hidden layers the first two are shared; mean and deviation have separate last two layers."""
    critic = GaussianReturnQ(CONTINUOUS, (5, 4, 3, 2), KEY)
    assert [len(mlp.layers) for mlp in (critic.shared_mlp, *critic.branch_mlps)] == [2, 2, 2]
    o, actions = jnp.array([0.1, 0.2, 0.3]), jnp.array([[0.5, -0.5], [1.0, 0.0]])
    for action, *result in zip(actions, *critic(o, actions), strict=True):
        numbers = []
        for branch, out in zip(critic.branch_mlps, critic.branch_outs, strict=True):
            x = np.concatenate([o, action])
            for layer in (*critic.shared_mlp.layers, *branch.layers):
                x = np.maximum(x @ np.asarray(layer.weight) + np.asarray(layer.bias), 0)
            numbers.append((x @ np.asarray(out.weight))[0])
        assert result[0] == pytest.approx(numbers[0], abs=1e-6)
        assert result[1] == pytest.approx(np.log1p(np.exp(numbers[1])), abs=1e-6)


@pytest.mark.parametrize("hidden", [(3,), (3, 2)])
def test_deviation_has_no_gradient_in_the_mean_layers(hidden):
    """With few layers, none is shared."""
    critic = GaussianReturnQ(CONTINUOUS, hidden, KEY, activation=jnp.tanh)
    gradient = jax.grad(lambda c: c(jnp.ones(3), jnp.ones((1, 2)))[1][0])(critic)
    mean, deviation = gradient.branch_mlps
    assert not gradient.shared_mlp.layers and [len(mlp.layers) for mlp in (mean, deviation)] == 2 * [len(hidden)]
    assert all(jnp.all(x == 0) for x in jax.tree.leaves(mean))
    assert all(jnp.any(x != 0) for x in jax.tree.leaves(deviation))


def test_gaussian_return_q_rejects_discrete_actions():
    with pytest.raises(UserError, match="use sac, dqn or ppo"):
        GaussianReturnQ(DISCRETE, (4,), KEY)


def test_ensemble_members_differ_and_are_evaluated_separately():
    critics = init_ensemble(lambda k: build_q_function(CONTINUOUS, (5,), k), 3, KEY)
    o, actions = jnp.ones(3), jnp.array([[0.5, -0.5]])
    values = np.asarray(evaluate_ensemble(critics, o, actions))
    assert values.shape == (3, 1) and len(np.unique(values)) == 3
    second = jax.tree.map(lambda x: x[1], critics)
    np.testing.assert_allclose(values[1], second(o, actions), atol=1e-6)


def test_state_value_carries_memory():
    body = Body(VECTOR, (4,), KEY, init=orthogonal(1.0), activation=jnp.tanh, memory=GRU(3))
    critic = StateValue(body, orthogonal(1.0), KEY)
    first, memory = critic(jnp.zeros(3), jnp.ones(3))
    second, _ = critic(memory, jnp.ones(3))
    assert first.shape == () and memory.shape == (3,) and first != second


def test_critic_type_follows_the_action_space():
    assert isinstance(build_q_function(DISCRETE, (4,), KEY), DiscreteQ)
    assert isinstance(build_q_function(CONTINUOUS, (4,), KEY), ContinuousQ)
    with pytest.raises(UserError, match="use ppo or a2c"):
        build_q_function(EnvSpec("vector", VECTOR, MultiDiscrete((2, 2))), (4,), KEY)
