"""Replay with a buffer for each task: what is stored by a model in Python, exact shares, frequencies by chi-square."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from thespis.core.errors import UserError
from thespis.core.laws.feeds import FEED_SPEC
from thespis.core.laws.random_samples import random_transitions
from thespis.data.task_replay import TaskReplay
from thespis.methods.online.sac import SAC
from thespis.runs.config import apply_settings

TASKS, SLOTS, TIME, ENVS = 3, 5, 4, 3
FEED = TaskReplay(
    num_tasks=TASKS, buffer_size=TASKS * SLOTS + 1, batch_size=10, learning_starts=4, update_interval=TIME
)

ROLLOUT = random_transitions(FEED_SPEC, np.random.default_rng(0), TIME, ENVS)


def blocks_of(levels):
    """Blocks of transitions with the levels ``[block, time, env]``, whose rewards number them."""
    steps = random_transitions(FEED_SPEC, np.random.default_rng(0), levels.shape[0] * TIME, ENVS)
    blocks = jax.tree.map(lambda x: x.reshape(-1, TIME, *x.shape[1:]), steps)
    return dataclasses.replace(
        blocks, level=jnp.asarray(levels), reward=jnp.arange(float(levels.size)).reshape(levels.shape)
    )


def fill(store, blocks, key):
    """The buffers after all blocks."""
    state = store.init(jax.tree.map(lambda x: x[0, 0, 0], blocks), ENVS)

    def add(state, inputs):
        index, block = inputs
        return store.add_with_key(state, block, index * TIME, jax.random.fold_in(key, index)), None

    return jax.lax.scan(add, state, (jnp.arange(blocks.reward.shape[0]), blocks))[0]


def draw_batch(store, state, key):
    """The tasks and the numbers of a batch's rows."""
    batch = store.sample(state, ROLLOUT, (), jnp.int32(0), jnp.int32(0), key, ())
    return batch.steps.level[0], batch.steps.reward[0].astype("int32")


@pytest.mark.parametrize("num_blocks", [1, 2, 9])
def test_each_task_keeps_its_newest_transitions(num_blocks):
    rng = np.random.default_rng(num_blocks)
    levels = rng.choice([-1, 0, 1, 2, TASKS], (num_blocks, TIME, ENVS), p=[0.1, 0.6, 0.15, 0.05, 0.1]).astype("int32")
    blocks, slots = blocks_of(levels), [[None] * SLOTS for _ in range(TASKS)]
    counts = [0] * TASKS
    for number, level in enumerate(levels.ravel().tolist()):
        if 0 <= level < TASKS:
            slots[level][counts[level] % SLOTS] = number
            counts[level] += 1
    state = jax.jit(lambda key: fill(FEED.make_store(1_000), blocks, key))(jax.random.key(0))
    np.testing.assert_array_equal(state.num_seen, counts)
    stored = np.asarray(state.items.reward).astype(int).reshape(TASKS, SLOTS).tolist()
    for task in range(TASKS):
        filled = min(counts[task], SLOTS)
        assert stored[task][:filled] == slots[task][:filled]


def test_batches_have_equal_shares_of_the_tasks_that_were_played():
    levels = np.full((4, TIME, ENVS), 2, "int32")
    levels[1, 0, 0] = 0  # once; task 1 never
    store, blocks = FEED.make_store(1_000), blocks_of(levels)
    state = jax.jit(lambda key: fill(store, blocks, key))(jax.random.key(0))
    draw = jax.jit(jax.vmap(lambda key: draw_batch(store, state, key)))
    tasks, numbers = jax.tree.map(np.asarray, draw(jax.random.split(jax.random.key(1), 400)))
    assert (np.sum(tasks == 0, axis=1) == 5).all() and (np.sum(tasks == 2, axis=1) == 5).all()
    assert set(numbers[tasks == 0].tolist()) == {TIME * ENVS}
    values, counts = np.unique(numbers[tasks == 2], return_counts=True)
    assert values.tolist() == list(range(43, 48)) and scipy.stats.chisquare(counts).pvalue > 1e-3


def test_rows_that_cannot_be_shared_go_to_any_task():
    levels = np.arange(TIME * ENVS, dtype="int32").reshape(1, TIME, ENVS) % TASKS
    store, blocks = FEED.make_store(1_000), blocks_of(levels)
    state = jax.jit(lambda key: fill(store, blocks, key))(jax.random.key(0))
    draw = jax.jit(jax.vmap(lambda key: draw_batch(store, state, key)[0]))
    tasks = np.asarray(draw(jax.random.split(jax.random.key(2), 600)))
    counts = np.stack([np.sum(tasks == task, axis=1) for task in range(TASKS)], axis=1)
    assert set(map(tuple, np.sort(counts, axis=1).tolist())) == {(3, 3, 4)}
    assert scipy.stats.chisquare(np.sum(counts == 4, axis=0)).pvalue > 1e-3


def test_a_uniform_sample_of_each_task():
    """Every transition of a task is stored equally often, whatever the other tasks do."""
    levels = np.where(np.arange(6 * TIME * ENVS) % 4 == 0, 1, 0).astype("int32").reshape(6, TIME, ENVS)
    store = dataclasses.replace(FEED, keep_uniform=True).make_store(1_000)
    blocks, runs = blocks_of(levels), 3_000
    keys = jax.random.split(jax.random.key(3), runs)
    state = jax.jit(jax.vmap(lambda key: fill(store, blocks, key)))(keys)
    stored = np.asarray(state.items.reward).astype(int).reshape(runs, TASKS, SLOTS)
    for task in (0, 1):
        numbers = np.flatnonzero(levels.ravel() == task)
        counts = np.bincount(stored[:, task].ravel(), minlength=levels.size)
        assert counts.sum() == counts[numbers].sum() and all(len(set(x)) == SLOTS for x in stored[:, task].tolist())
        # of a sample without replacement the counts vary less than those of independent draws
        expected, left_out = runs * SLOTS / len(numbers), 1 - SLOTS / len(numbers)
        statistic = np.sum((counts[numbers] - expected) ** 2) / expected / left_out * (len(numbers) - 1) / len(numbers)
        assert scipy.stats.chi2.sf(statistic, len(numbers) - 1) > 1e-3


def test_settings_and_mistakes():
    method = apply_settings(SAC(), ["feed=TaskReplay", "feed.num_tasks=3", "batch_size=8"])
    assert method.feed == TaskReplay(num_tasks=3, batch_size=8)
    assert TaskReplay(num_tasks=2, learning_starts=100, update_interval=4).make_store(1).num_warmup_blocks(2) == 12
    example = jax.tree.map(lambda x: x[0, 0], random_transitions(FEED_SPEC, np.random.default_rng(0), 1, 1))
    with pytest.raises(UserError, match="does not number its tasks: add --curriculum tasks"):
        FEED.make_store(10).init(example, ENVS)
    with pytest.raises(UserError, match="needs a task, and a place for each"):
        TaskReplay(num_tasks=4, buffer_size=3).make_store(10).init(example, ENVS)
    with pytest.raises(UserError, match="cannot grow: start a new run"):
        TaskReplay(num_tasks=2, buffer_size=100).make_store(20).check_growth(60)
    TaskReplay(num_tasks=2, buffer_size=100).make_store(50).check_growth(600)
