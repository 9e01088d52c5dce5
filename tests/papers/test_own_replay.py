"""Own replay: where each member's batches come from, who acts where, and that members can learn as if alone."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_envs import Walk

from thespis.core.errors import UserError
from thespis.core.laws.random_samples import random_transitions
from thespis.core.spaces import Discrete
from thespis.papers.ensemble_categorical_rl.own_replay import MemberReplay, PerEnvironment

SPEC = Walk(Discrete(4)).spec
MEMBERS, TICKS = 3, 8


def filled_store(num_envs, **settings):
    """A store whose rewards are the number of the environment plus a hundredth of the tick."""
    store = MemberReplay(
        num_members=MEMBERS, num_envs=num_envs, buffer_size=3_000, update_interval=4, **settings
    ).make_store(3_000)
    steps = random_transitions(SPEC, np.random.default_rng(0), TICKS, num_envs)
    rewards = np.arange(num_envs)[None] + np.arange(TICKS)[:, None] / 100
    steps = jax.tree.map(jnp.asarray, steps)
    steps = dataclasses.replace(steps, reward=jnp.asarray(rewards, "float32"))
    state = store.init(jax.tree.map(lambda x: x[0, 0], steps), num_envs)
    for start in range(0, TICKS, 4):
        block = jax.tree.map(lambda x, start=start: x[start : start + 4], steps)
        state = store.add(state, block, jnp.int32(start))
    return store, state, block


@pytest.mark.parametrize("num_envs", [3, 6])
def test_shares_come_uniformly_from_the_members_own_environments(num_envs):
    store, state, block = filled_store(num_envs, batch_size=3_000)
    batch = store.sample(state, block, (), jnp.int32(TICKS), jnp.int32(0), jax.random.key(0), ())
    envs = np.floor(np.asarray(batch.steps.reward[0]) + 1e-4).astype(int)
    ticks = np.rint((np.asarray(batch.steps.reward[0]) - envs) * 100).astype(int)
    assert (envs.reshape(MEMBERS, -1) % MEMBERS == np.arange(MEMBERS)[:, None]).all()
    cells = num_envs // MEMBERS * TICKS
    for member in range(MEMBERS):
        share = slice(member * 1_000, (member + 1) * 1_000)
        counts = np.unique(envs[share] * TICKS + ticks[share], return_counts=True)[1]
        assert len(counts) == cells
        expected = 1_000 / cells
        assert (abs(counts - expected) <= 4.5 * (expected * (1 - 1 / cells)) ** 0.5).all()


def test_members_act_in_their_own_environments():
    exploration = PerEnvironment()
    memory = exploration.init_memory(6)
    member, after = jax.vmap(lambda m: exploration.sample_member(m, MEMBERS, jax.random.key(0)))(memory)
    assert member.tolist() == [0, 1, 2, 0, 1, 2] and after.tolist() == memory.tolist()


def test_unequal_shares_are_refused():
    with pytest.raises(UserError, match="multiple of 3 members"):
        filled_store(4, batch_size=6)
    with pytest.raises(UserError, match="equal shares"):
        filled_store(3, batch_size=7)
