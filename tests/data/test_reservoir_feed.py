"""Reservoir feed: all transitions so far are stored with the same probability, by a chi-square test."""

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
from thespis.data.feeds import Replay
from thespis.data.mix import mix
from thespis.data.reservoir import Reservoir
from thespis.methods.online.dqn import DQN
from thespis.runs.config import apply_settings

SLOTS, BLOCKS, TIME, ENVS, RUNS = 8, 5, 2, 3, 4_000
COUNT = BLOCKS * TIME * ENVS
FEED = Reservoir(buffer_size=SLOTS, batch_size=16, learning_starts=4, update_interval=TIME, num_envs=ENVS)


def numbered_blocks():
    """Blocks of transitions whose rewards number them."""
    steps = random_transitions(FEED_SPEC, np.random.default_rng(0), BLOCKS * TIME, ENVS)
    steps = dataclasses.replace(steps, reward=jnp.arange(float(COUNT)).reshape(-1, ENVS))
    return jax.tree.map(lambda x: x.reshape(BLOCKS, TIME, *x.shape[1:]), steps)


def fill(store, key):
    """The store after all blocks."""
    blocks = numbered_blocks()
    state = store.init(jax.tree.map(lambda x: x[0, 0, 0], blocks), ENVS)

    def add(state, inputs):
        index, block = inputs
        return store.add_with_key(state, block, index * TIME, jax.random.fold_in(key, index)), None

    return jax.lax.scan(add, state, (jnp.arange(BLOCKS), blocks))[0]


def p_value(frequencies, runs=RUNS):
    """Pearson's test that each of the items is stored equally often: their numbers of runs, of which each has SLOTS."""
    expected = runs * SLOTS / COUNT
    statistic = np.sum((frequencies - expected) ** 2) / (expected * (1 - SLOTS / COUNT)) * (COUNT - 1) / COUNT
    return scipy.stats.chi2.sf(statistic, COUNT - 1)


def test_every_transition_is_stored_with_the_same_probability():
    store = FEED.make_store(1_000)
    stored = jax.jit(jax.vmap(lambda key: fill(store, key).items.reward))(jax.random.split(jax.random.key(0), RUNS))
    stored = np.asarray(stored).astype(int)
    assert all(len(set(slots)) == SLOTS for slots in stored.tolist()), "nothing is stored twice"
    frequencies = np.bincount(stored.ravel(), minlength=COUNT)
    assert p_value(frequencies) > 1e-3
    # the test finds a bias of a tenth towards the second half, and the latest transitions alone
    biased = np.where(np.arange(COUNT) < COUNT // 2, 0.95, 1.05) * RUNS * SLOTS / COUNT
    assert p_value(biased) < 1e-3 and p_value(np.where(np.arange(COUNT) < COUNT - SLOTS, 0, RUNS)) < 1e-9
    first, second = (set(slots) for slots in stored[:2].tolist())
    assert first != second, "seeds store samples of their own"


def test_batches_are_uniform_over_the_slots():
    store = FEED.make_store(1_000)
    state = jax.jit(lambda key: fill(store, key))(jax.random.key(3))
    steps = jax.tree.map(lambda x: x[-1], numbered_blocks())
    draw = jax.jit(jax.vmap(lambda key: store.sample(state, steps, (), jnp.int32(0), jnp.int32(0), key, ())))
    rewards = np.asarray(draw(jax.random.split(jax.random.key(1), 500)).steps.reward).astype(int).ravel()
    numbers, counts = np.unique(rewards, return_counts=True)
    assert set(numbers.tolist()) == set(np.asarray(state.items.reward).astype(int).tolist())
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_settings_and_mistakes():
    method = apply_settings(DQN(), ["feed=Reservoir", "feed.buffer_size=50", "batch_size=8"])
    assert method.feed == Reservoir(50, 8)
    assert FEED.make_store(100).num_warmup_blocks(ENVS) == 0
    assert Reservoir(learning_starts=100, update_interval=4).make_store(1).num_warmup_blocks(2) == 12
    both = mix(
        {"old": dataclasses.replace(FEED, update_interval=1), "new": Replay(update_interval=3)},
        {"old": 0.5, "new": 0.5},
    )
    assert both.members["old"].update_interval == 1 == both.members["new"].update_interval
    with pytest.raises(UserError, match="a reservoir needs at least one slot"):
        Reservoir(buffer_size=0).make_store(10).init(jax.tree.map(lambda x: x[0, 0, 0], numbered_blocks()), ENVS)
    with pytest.raises(UserError, match="cannot grow: start a new run"):
        Reservoir(buffer_size=50).make_store(20).check_growth(60)
    Reservoir(buffer_size=50).make_store(60).check_growth(600)
