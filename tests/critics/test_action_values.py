"""Critics of states and actions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import BOX, TREE, VECTOR

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.core.samples import random_value
from thespis.core.spaces import Discrete, MultiDiscrete
from thespis.critics.values import ChoiceValue, PairReturn, PairValue, Value, action_value, ensemble, evaluate_ensemble
from thespis.nets.body import GRU, Body
from thespis.nets.mlp import orthogonal

KEY, RNG = jax.random.key(0), np.random.default_rng(0)
CHOICES, PUSHES = EnvSpec("choices", TREE, Discrete(4)), EnvSpec("pushes", VECTOR, BOX)


def test_values_of_choices_are_rows_of_one_pass():
    critic = ChoiceValue(CHOICES, (8,), KEY)
    o = jax.tree.map(jnp.asarray, random_value(TREE, RNG))
    np.testing.assert_array_equal(critic(o, jnp.array([3, 0])), critic.all(o)[jnp.array([3, 0])])


def test_duelling_advantages_have_mean_zero():
    """Wang et al., 2016, eq. 9: the mean over choices is the state's value."""
    critic = ChoiceValue(CHOICES, (8,), KEY, duelling=True)
    o = jax.tree.map(jnp.asarray, random_value(TREE, RNG))
    features, _ = critic.body((), o)
    assert jnp.mean(critic.all(o)) == pytest.approx(float(critic.state(features)[0]), abs=1e-6)
    advantages = critic.out(features)
    np.testing.assert_allclose(critic.all(o) - jnp.mean(critic.all(o)), advantages - jnp.mean(advantages), atol=1e-6)


def test_values_of_pairs_against_numpy():
    critic = PairValue(PUSHES, (5,), KEY)
    o, actions = jnp.array([0.1, 0.2, 0.3]), jnp.array([[0.5, -0.5], [1.0, 0.0]])
    layer = critic.mlp.layers[0]
    for action, value in zip(actions, critic(o, actions), strict=True):
        x = np.concatenate([o, action])
        hidden = np.maximum(x @ np.asarray(layer.weight), 0)
        assert value == pytest.approx(float((hidden @ np.asarray(critic.out.weight))[0]), abs=1e-6)


def test_a_normal_return_against_numpy():
    """Of four hidden layers the first two are shared, the last two are the mean's and the deviation's own."""
    critic = PairReturn(PUSHES, (5, 4, 3, 2), KEY)
    assert [len(mlp.layers) for mlp in (critic.shared, *critic.branches)] == [2, 2, 2]
    o, actions = jnp.array([0.1, 0.2, 0.3]), jnp.array([[0.5, -0.5], [1.0, 0.0]])
    for action, *found in zip(actions, *critic(o, actions), strict=True):
        numbers = []
        for branch, out in zip(critic.branches, critic.outs, strict=True):
            x = np.concatenate([o, action])
            for layer in (*critic.shared.layers, *branch.layers):
                x = np.maximum(x @ np.asarray(layer.weight) + np.asarray(layer.bias), 0)
            numbers.append((x @ np.asarray(out.weight))[0])
        assert found[0] == pytest.approx(numbers[0], abs=1e-6)
        assert found[1] == pytest.approx(np.log1p(np.exp(numbers[1])), abs=1e-6)


@pytest.mark.parametrize("hidden", [(3,), (3, 2)])
def test_the_deviation_never_bends_the_layers_of_the_mean(hidden):
    """Few layers are all apart."""
    critic = PairReturn(PUSHES, hidden, KEY, activation=jnp.tanh)
    gradient = jax.grad(lambda c: c(jnp.ones(3), jnp.ones((1, 2)))[1][0])(critic)
    mean, deviation = gradient.branches
    assert not gradient.shared.layers and [len(mlp.layers) for mlp in (mean, deviation)] == 2 * [len(hidden)]
    assert all(jnp.all(x == 0) for x in jax.tree.leaves(mean))
    assert all(jnp.any(x != 0) for x in jax.tree.leaves(deviation))


def test_a_normal_return_needs_a_box():
    with pytest.raises(UserError, match="use sac, dqn or ppo"):
        PairReturn(CHOICES, (4,), KEY)


def test_members_of_an_ensemble_differ_and_are_evaluated_each():
    critics = ensemble(lambda k: action_value(PUSHES, (5,), k), 3, KEY)
    o, actions = jnp.ones(3), jnp.array([[0.5, -0.5]])
    values = np.asarray(evaluate_ensemble(critics, o, actions))
    assert values.shape == (3, 1) and len(np.unique(values)) == 3
    second = jax.tree.map(lambda x: x[1], critics)
    np.testing.assert_allclose(values[1], second(o, actions), atol=1e-6)


def test_a_state_value_carries_the_memory_of_its_body():
    body = Body(VECTOR, (4,), KEY, init=orthogonal(1.0), activation=jnp.tanh, memory=GRU(3))
    critic = Value(body, orthogonal(1.0), KEY)
    first, memory = critic(jnp.zeros(3), jnp.ones(3))
    second, _ = critic(memory, jnp.ones(3))
    assert first.shape == () and memory.shape == (3,) and first != second


def test_the_critic_fits_the_action_space_or_says_what_does():
    assert isinstance(action_value(CHOICES, (4,), KEY), ChoiceValue)
    assert isinstance(action_value(PUSHES, (4,), KEY), PairValue)
    with pytest.raises(UserError, match="use ppo or a2c"):
        action_value(EnvSpec("vector", VECTOR, MultiDiscrete((2, 2))), (4,), KEY)
