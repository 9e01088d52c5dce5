"""CrossQ: current and next actions in one batch, targets without gradient, delayed actor, box actions only."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_envs import BOX, VECTOR

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, View
from thespis.core.spaces import Discrete
from thespis.learners.off_policy.critic_updates import NStepBatch
from thespis.learners.off_policy.temperature import FixedTemperature
from thespis.learners.optim.optimizers import OptaxOptimizer
from thespis.methods.online.crossq import CrossQ, running_minimum

SPEC = EnvSpec("pushes", VECTOR, BOX)
METHOD = CrossQ(
    hidden_sizes=(8,),
    critic_hidden_sizes=(6,),
    learning_rate=0.1,
    optimizer=OptaxOptimizer("sgd()"),
    temperature=FixedTemperature(0.3),
)
ROWS = 16


@pytest.fixture(scope="module")
def state():
    return jax.jit(lambda key: METHOD.init(SPEC, key))(jax.random.key(0))


@pytest.fixture(scope="module")
def data():
    keys = jax.random.split(jax.random.key(1), 4)
    observation, after = jax.random.normal(keys[0], (ROWS, 3)), 2.0 + jax.random.normal(keys[1], (ROWS, 3))
    action = jax.random.uniform(keys[2], (ROWS, 2), minval=-1.0)
    reward, discount = jax.random.normal(keys[3], (ROWS,)), jnp.where(jnp.arange(ROWS) % 4 == 0, 0.0, 0.9)
    return NStepBatch(View(observation), action, reward, discount, View(after))


def numpy_values(critics, member: int, inputs: np.ndarray) -> np.ndarray:
    """Q-values of a batch by its own statistics."""
    mlp, out = (jax.tree.map(lambda x: np.asarray(x[member], "float64"), part) for part in (critics.mlp, critics.out))

    def norm(layer, x):
        return (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-3) * layer.scale + layer.bias

    x = norm(mlp.input_norm, inputs)
    x = norm(mlp.norms[0], np.maximum(x @ mlp.layers[0].weight + mlp.layers[0].bias, 0.0))
    return (x @ out.weight + out.bias)[:, 0]


@pytest.mark.long
def test_targets_come_from_the_joint_batch_and_have_no_gradient(state, data):
    key, alpha = jax.random.key(2), jnp.asarray(0.3)
    critics, _, _, metrics = jax.jit(METHOD._fit_critics)(state, data, alpha, key)

    @jax.jit
    def next_samples(views, keys):
        return jax.vmap(lambda view, key: state.actor(view).sample_with_log_prob(key))(views, keys)

    next_action, log_prob = next_samples(data.next_view, jax.random.split(key, ROWS))
    now = np.concatenate([data.view.observation, data.action], axis=1)
    then = np.concatenate([data.next_view.observation, next_action], axis=1)
    values = np.stack([numpy_values(state.critics, i, np.concatenate([now, then])) for i in range(2)])
    target = np.asarray(data.reward) + data.discount * (values[:, ROWS:].min(0) - 0.3 * log_prob)
    error = values[:, :ROWS] - np.asarray(target)
    assert float(metrics["critic_loss"]) == pytest.approx(np.mean(error**2), rel=1e-4)
    # the step of plain gradient descent on half the squared error, for a parameter that values are linear in
    step = np.asarray(critics.out.bias - state.critics.out.bias)[:, 0]
    np.testing.assert_allclose(step, -0.1 * error.mean(axis=1), atol=1e-5)


def test_the_actor_is_updated_on_its_batch_statistics(state, data):
    update = jax.jit(
        lambda delayed, key: METHOD._update_actor(
            delayed, running_minimum(state.critics, state.critic_statistics), data, key
        )
    )
    delayed = state.delayed
    for i in range(3):
        delayed = update(delayed, jax.random.key(i))
    statistics = delayed.actor.statistics
    assert [int(s.num_batches) for s in statistics] == [3, 3]
    mean = np.asarray(data.view.observation).mean(0)
    np.testing.assert_allclose(statistics[0].mean, (1 - 0.99**3) * mean, rtol=1e-4)
    assert all(int(s.num_batches[0]) == 0 for s in state.critic_statistics)


def test_other_actions_are_refused():
    with pytest.raises(UserError, match=r"crossq needs one box of actions, choices has .*: use sac, dqn or ppo"):
        METHOD.init(dataclasses.replace(SPEC, name="choices", action_space=Discrete(3)), jax.random.key(0))
