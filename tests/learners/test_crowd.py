"""Many agents that learn by a method for one."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import made_up
import numpy as np
import pytest
from cases import CASES, KUHN
from worlds import Walk

import thespis
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.keys import key_of
from thespis.core.records import Batch
from thespis.core.samples import random_steps
from thespis.learners.crowd import EachAlone, batch_of
from thespis.learners.sharing import Renewed, Separate
from thespis.methods.online.dqn import DQN
from thespis.methods.online.ppo import PPO


def batch_for(method, state, seed=0):
    steps = random_steps(KUHN.spec, np.random.default_rng(seed), 8, 3)
    policy = method.policy(state, Mode.EXPLORE)
    memory = method.begin(policy, 3)
    extras = {"seats": {"log_prob": -jnp.ones((8, 3, 2))}}
    return Batch(dataclasses.replace(steps, extras=extras), jnp.ones((8, 3), bool), memory, jnp.int32(0))


@pytest.mark.parametrize("name", ["ippo", "ippo with memory"])
def test_the_absent_add_exactly_nothing(name):
    """Rewards apart, what stands where an agent does not decide changes neither losses nor parameters, bit by bit."""
    method = CASES[name].method
    if "memory" in name:  # a memory sees what the agent sees while it waits
        method = dataclasses.replace(method, method=dataclasses.replace(method.method, memory=None))
    state = made_up.begun(method, KUHN.spec)
    batch = batch_for(method, state)
    alive = batch.steps.view.alive["seats"]

    def other(x):
        shape = alive.shape + (1,) * (x.ndim - alive.ndim)
        noise = jax.random.normal(key_of(5), x.shape)
        return jnp.where(alive.reshape(shape), x, noise.astype(x.dtype) if x.dtype == "float32" else x)

    def changed(batch):
        seen = jax.tree.map(other, batch.steps.view.observation)
        extras = jax.tree.map(other, batch.steps.extras)
        return eqx.tree_at(lambda b: (b.steps.view.observation, b.steps.extras), batch, (seen, extras))

    update = jax.jit(method.update)
    one, two = update(state, batch, key_of(1)), update(state, changed(batch), key_of(1))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    assert not np.all(alive) and np.any(alive)


def test_an_agent_that_has_gone_ends_its_own_episode():
    batch = batch_for(CASES["ippo"].method, made_up.begun(CASES["ippo"].method, KUHN.spec))
    own = batch_of(batch, KUHN.spec.groups[0])
    gone = np.asarray(batch.steps.each["seats"].gone)
    assert gone.any()
    np.testing.assert_array_equal(own.steps.terminated, gone | np.asarray(batch.steps.terminated)[:, :, None])
    np.testing.assert_array_equal(own.steps.reward, batch.steps.each["seats"].reward)


def test_separate_agents_learn_what_each_would_alone():
    method = EachAlone(PPO(hidden=(8,), epochs=2, minibatch=12), Separate())
    state = made_up.begun(method, KUHN.spec)
    batch = batch_for(method, state)
    after, _ = jax.jit(method.update)(state, batch, key_of(1))
    leaves = jax.tree.leaves(eqx.filter(after.of["seats"].network, eqx.is_array))
    assert all(leaf.shape[0] == 2 for leaf in leaves)
    assert any(np.any(np.asarray(leaf[0]) != np.asarray(leaf[1])) for leaf in leaves)
    # what the second one saw is nothing to the first
    steps = batch.steps
    view = eqx.tree_at(
        lambda v: v.observation["seats"]["seen"], steps.view, replace_fn=lambda x: x.at[:, :, 1].set(9.0)
    )
    other, _ = jax.jit(method.update)(state, eqx.tree_at(lambda b: b.steps.view, batch, view), key_of(1))
    for a, b in zip(leaves, jax.tree.leaves(eqx.filter(other.of["seats"].network, eqx.is_array)), strict=True):
        np.testing.assert_array_equal(np.asarray(a[0]), np.asarray(b[0]))


def test_the_renewed_begin_anew_in_time_and_the_others_learn_on():
    """Updates on 24 steps each: after 40 steps, that is after two, the second agent is what it was; the first never is.

    Between two returns both learn bit by bit what they learn where nobody returns.
    """
    one = PPO(hidden=(8,), epochs=1, minibatch=24)
    renewed, apart = EachAlone(one, Renewed(40, (0, 1))), EachAlone(one, Separate())
    update = jax.jit(lambda method, *given: method.update(*given), static_argnums=0)
    state, other = made_up.begun(renewed, KUHN.spec), made_up.begun(apart, KUHN.spec)
    first = state.of["seats"].first
    for index in range(4):
        batch = dataclasses.replace(batch_for(apart, other, seed=index), index=jnp.int32(index))
        state, _ = update(renewed, state, batch, key_of(index))
        other, _ = update(apart, other, batch, key_of(index))
        back = index % 2 == 1
        for now, begun, going in zip(
            *map(jax.tree.leaves, (state.of["seats"].now, first, other.of["seats"])), strict=True
        ):
            np.testing.assert_array_equal(now[0], going[0])
            np.testing.assert_array_equal(now[1], begun[1] if back else going[1])
        if back:
            other = eqx.tree_at(lambda o: o.of["seats"], other, state.of["seats"].now)
    for kept, begun in zip(jax.tree.leaves(state.of["seats"].first), jax.tree.leaves(first), strict=True):
        np.testing.assert_array_equal(kept, begun)
    with pytest.raises(UserError, match="2 agents are renewed"):
        EachAlone(one, Renewed(40, (0,))).init(KUHN.spec, key_of(0))


@pytest.mark.slow
def test_a_method_for_one_is_fitted_to_a_game(tmp_path):
    run = thespis.train(
        "a2c", "pgx:kuhn_poker", steps=200, envs=4, settings={"hidden": "8", "feed.length": "8"}, out=tmp_path / "run",
        episodes=2,
    )  # fmt: skip
    assert isinstance(run.method, EachAlone) and run.config["method_name"] == "a2c"
    assert set(run.evaluate(episodes=2)["greedy"]) >= {"scores"}


def test_worlds_it_cannot_serve_are_refused():
    with pytest.raises(UserError, match="has one agent"):
        CASES["ippo"].method.init(Walk().spec, key_of(0))
    with pytest.raises(UserError, match="players wait for their turn"):
        EachAlone(DQN()).init(KUHN.spec, key_of(0))
