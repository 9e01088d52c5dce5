"""Replay of sequences against a list in plain Python: which steps, which mask, and which memory."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from synthetic_steps import ENVS, coded_steps

from thespis.core.errors import UserError
from thespis.core.records import Report
from thespis.data.feeds import PrioritizedSampler
from thespis.data.sequence_replay import SequenceReplay, StoredMemory

TICKS, INTERVAL = 40, 2


def steps_with_memory():
    """Coded steps whose memory is ``(tick, env)``, as a tree."""
    steps = coded_steps(TICKS)
    tick, env = jnp.meshgrid(jnp.arange(TICKS, dtype="float32"), jnp.arange(ENVS, dtype="float32"), indexing="ij")
    return dataclasses.replace(steps, extras=StoredMemory({"tick": tick[..., None], "env": env}))


def feed(**settings):
    base = {"buffer_size": 42, "batch_size": 40, "update_interval": INTERVAL, "sequence_length": 3, "burn_in": 2}
    return SequenceReplay(**base | settings)


def filled(feed, steps, ticks):
    store = feed.make_store(1_000)
    state = store.init(jax.tree.map(lambda x: x[0, 0], steps), ENVS)
    add = jax.jit(store.add)
    for start in range(0, ticks, INTERVAL):
        state = add(state, jax.tree.map(lambda x, t=start: x[t : t + INTERVAL], steps), jnp.int32(start))
    return store, state


def sample(store, state, steps, ticks, seed):
    return jax.jit(store.sample)(state, steps, (), jnp.int32(ticks), jnp.int32(0), jax.random.key(seed), ())


@pytest.mark.parametrize(
    ("sampler", "ticks"),  # one possible start, a full buffer, and one overwritten twice
    [
        pytest.param(
            sampler, ticks, id=f"{name}-{ticks}", marks=() if (name, ticks) == ("uniform", 40) else pytest.mark.long
        )
        for name, sampler in (("uniform", None), ("prioritized", PrioritizedSampler()))
        for ticks in (6, 14, 40)
    ],
)
def test_sequences_are_consecutive_steps_across_episodes_with_their_memory(sampler, ticks):
    steps = steps_with_memory()
    store, state = filled(feed(sampler=sampler), steps, ticks)
    found, crossing = set(), 0
    for seed in range(12):
        batch = sample(store, state, steps, ticks, seed)
        assert batch.mask.shape == (5, 40) and np.asarray(batch.mask).all() and batch.steps.extras == ()
        reward, first = np.asarray(batch.steps.reward), np.asarray(batch.steps.is_first)
        start = np.floor(reward[0] + 0.05).astype(int)
        env = np.round((reward[0] - start) * 10).astype(int)
        rows = start + np.arange(5)[:, None]
        np.testing.assert_allclose(reward, np.asarray(steps.reward)[rows, env], rtol=1e-6)
        for name in ("view", "next_view"):
            ours, theirs = getattr(batch.steps, name).observation, getattr(steps, name).observation
            np.testing.assert_array_equal(ours, np.asarray(theirs)[rows, env])
        np.testing.assert_array_equal(first, np.asarray(steps.is_first)[rows, env])
        np.testing.assert_array_equal(batch.memory["tick"][:, 0], start)
        np.testing.assert_array_equal(batch.memory["env"], env)
        found |= set(zip(start.tolist(), env.tolist(), strict=True))
        crossing += int(first[1:].sum())
    oldest = max(ticks - 14, 0)  # 42 transitions of 3 environments are 14 rows
    assert found == {(t, env) for t in range(oldest, ticks - 4) for env in range(ENVS)}
    assert crossing > 0


def test_sequences_without_stored_memory_have_none():
    steps = dataclasses.replace(steps_with_memory(), extras=())
    store, state = filled(feed(stored_memory=False), steps, 10)
    assert sample(store, state, steps, 10, 0).memory == ()
    with pytest.raises(UserError, match="stores no memory"):
        filled(feed(), steps, 10)


@pytest.mark.long
def test_priorities_reach_the_sampler():
    """After an update only sequences with a positive priority are drawn."""
    steps = steps_with_memory()
    store, state = filled(feed(sampler=PrioritizedSampler(alpha=1.0, epsilon=0.0)), steps, 10)
    part = store.revisable(state)
    for seed in range(20):
        batch = sample(store, state, steps, 10, seed)
        chosen = np.asarray(batch.memory["tick"][:, 0]) == 2.0
        part = store.revise(part, batch, Report({}, jnp.asarray(chosen, "float32")))
    batch = sample(store, store.with_revised(state, part), steps, 10, 99)
    assert set(np.asarray(batch.memory["tick"]).ravel().tolist()) == {2.0}


def test_a_buffer_without_room_for_a_sequence_is_refused():
    with pytest.raises(UserError, match=r"raise feed\.buffer_size"):
        filled(feed(buffer_size=40, sequence_length=50), steps_with_memory(), 10)


def test_updates_wait_for_a_whole_sequence():
    store = feed(learning_starts=0).make_store(1_000)
    assert store.num_warmup_blocks(ENVS) == 2  # the third block of two ticks completes a sequence of five
    assert store.feed.batch_shape == (5, 40)
