"""Independent learners: single-agent methods in multi-agent games, with shared, separate or reset parameters."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import synthetic_batches
from method_cases import CASES, KUHN
from small_envs import Walk

import thespis
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import Batch
from thespis.learners.multi_agent.independent_learners import IndependentLearners, group_batch
from thespis.learners.multi_agent.parameter_sharing import Independent, PeriodicReset
from thespis.methods.online.dqn import DQN
from thespis.methods.online.ppo import PPO
from thespis.runtime.keys import seed_key


def batch_for(method, state, seed=0):
    steps = random_transitions(KUHN.spec, np.random.default_rng(seed), 8, 3)
    policy = method.policy(state, Mode.EXPLORE)
    memory = method.init_memory(policy, 3)
    extras = {"seats": {"log_prob": -jnp.ones((8, 3, 2))}}
    return Batch(dataclasses.replace(steps, extras=extras), jnp.ones((8, 3), bool), memory, jnp.int32(0))


@pytest.mark.long
@pytest.mark.parametrize("name", ["ippo", "ippo with memory"])
def test_inactive_agents_change_nothing(name):
    """Entries of agents that do not act, rewards excepted, change neither losses nor parameters, bit by bit."""
    method = CASES[name].method
    if "memory" in name:  # a recurrent policy reads observations of waiting agents
        method = dataclasses.replace(method, method=dataclasses.replace(method.method, memory=None))
    state = synthetic_batches.init_state(method, KUHN.spec)
    batch = batch_for(method, state)
    alive = batch.steps.view.alive["seats"]

    def randomize(x):
        shape = alive.shape + (1,) * (x.ndim - alive.ndim)
        noise = jax.random.normal(seed_key(5), x.shape)
        return jnp.where(alive.reshape(shape), x, noise.astype(x.dtype) if x.dtype == "float32" else x)

    def randomized(batch):
        observation = jax.tree.map(randomize, batch.steps.view.observation)
        extras = jax.tree.map(randomize, batch.steps.extras)
        return eqx.tree_at(lambda b: (b.steps.view.observation, b.steps.extras), batch, (observation, extras))

    update = jax.jit(method.update)
    result, changed_result = update(state, batch, seed_key(1)), update(state, randomized(batch), seed_key(1))
    for a, b in zip(jax.tree.leaves(result), jax.tree.leaves(changed_result), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    assert not np.all(alive) and np.any(alive)


def test_terminated_agent_ends_its_own_episode():
    batch = batch_for(CASES["ippo"].method, synthetic_batches.init_state(CASES["ippo"].method, KUHN.spec))
    by_agent = group_batch(batch, KUHN.spec.groups[0])
    terminated = np.asarray(batch.steps.agent_outcomes["seats"].terminated)
    assert terminated.any()
    np.testing.assert_array_equal(
        by_agent.steps.terminated, terminated | np.asarray(batch.steps.terminated)[:, :, None]
    )
    np.testing.assert_array_equal(by_agent.steps.reward, batch.steps.agent_outcomes["seats"].reward)


@pytest.mark.long
def test_independent_parameters_do_not_share_data():
    method = IndependentLearners(PPO(hidden_sizes=(8,), num_epochs=2, minibatch_size=12), Independent())
    state = synthetic_batches.init_state(method, KUHN.spec)
    batch = batch_for(method, state)
    new_state, _ = jax.jit(method.update)(state, batch, seed_key(1))
    leaves = jax.tree.leaves(eqx.filter(new_state.by_group["seats"].network, eqx.is_array))
    assert all(leaf.shape[0] == 2 for leaf in leaves)
    assert any(np.any(np.asarray(leaf[0]) != np.asarray(leaf[1])) for leaf in leaves)
    # observations of the second agent do not change the first
    steps = batch.steps
    view = eqx.tree_at(
        lambda v: v.observation["seats"]["seen"], steps.view, replace_fn=lambda x: x.at[:, :, 1].set(9.0)
    )
    other, _ = jax.jit(method.update)(state, eqx.tree_at(lambda b: b.steps.view, batch, view), seed_key(1))
    for a, b in zip(leaves, jax.tree.leaves(eqx.filter(other.by_group["seats"].network, eqx.is_array)), strict=True):
        np.testing.assert_array_equal(np.asarray(a[0]), np.asarray(b[0]))


@pytest.mark.long
def test_periodic_reset_restores_initial_parameters():
    """Updates of 24 steps: the second agent is reset after 40 steps, that is every two updates; the first never is.

    Between resets both learn the same bits as without resets.
    """
    ppo = PPO(hidden_sizes=(8,), num_epochs=1, minibatch_size=24)
    with_reset, without_reset = (
        IndependentLearners(ppo, PeriodicReset(40, (0, 1))),
        IndependentLearners(ppo, Independent()),
    )
    update = jax.jit(lambda method, *args: method.update(*args), static_argnums=0)
    state, other = (
        synthetic_batches.init_state(with_reset, KUHN.spec),
        synthetic_batches.init_state(without_reset, KUHN.spec),
    )
    initial = state.by_group["seats"].initial
    for index in range(4):
        batch = dataclasses.replace(batch_for(without_reset, other, seed=index), update_index=jnp.int32(index))
        state, _ = update(with_reset, state, batch, seed_key(index))
        other, _ = update(without_reset, other, batch, seed_key(index))
        is_reset = index % 2 == 1
        for current, start, continued in zip(
            *map(jax.tree.leaves, (state.by_group["seats"].current, initial, other.by_group["seats"])), strict=True
        ):
            np.testing.assert_array_equal(current[0], continued[0])
            np.testing.assert_array_equal(current[1], start[1] if is_reset else continued[1])
        if is_reset:
            other = eqx.tree_at(lambda o: o.by_group["seats"], other, state.by_group["seats"].current)
    for stored, start in zip(jax.tree.leaves(state.by_group["seats"].initial), jax.tree.leaves(initial), strict=True):
        np.testing.assert_array_equal(stored, start)
    with pytest.raises(UserError, match="2 agents need agent_periods of 2 numbers"):
        IndependentLearners(ppo, PeriodicReset(40, (0,))).init(KUHN.spec, seed_key(0))


@pytest.mark.slow
def test_single_agent_method_trains_in_a_game(tmp_path):
    run = thespis.train(
        "a2c",
        "pgx:kuhn_poker",
        steps=200,
        envs=4,
        settings={"hidden_sizes": "8", "feed.num_steps": "8"},
        out=tmp_path / "run",
        episodes=2,
    )
    assert isinstance(run.method, IndependentLearners) and run.config["method_name"] == "a2c"
    assert set(run.evaluate(episodes=2)["greedy"]) >= {"scores"}


def test_unsupported_environments_are_refused():
    with pytest.raises(UserError, match="has one agent"):
        CASES["ippo"].method.init(Walk().spec, seed_key(0))
    with pytest.raises(UserError, match="players wait for their turn"):
        IndependentLearners(DQN()).init(KUHN.spec, seed_key(0))
