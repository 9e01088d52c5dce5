"""Prioritized replay against models in plain Python: sum tree, frequencies, weights, windows of a full buffer."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from synthetic_steps import COUNT, ENVS, coded_steps, stacked_steps

from thespis.core.errors import UserError
from thespis.core.records import Report
from thespis.data.feeds import PrioritizedSampler, Replay
from thespis.data.prioritized import Priorities, init_sum_tree


@pytest.mark.parametrize("num_leaves", [1, 2, 5, 64, 100])
def test_the_sum_tree_holds_sums_and_finds_intervals(num_leaves):
    rng = np.random.default_rng(num_leaves)
    tree, values = init_sum_tree(num_leaves), np.zeros(num_leaves)
    assert tree.num_leaves >= num_leaves
    for _ in range(5):
        chosen = rng.choice(num_leaves, max(num_leaves // 2, 1), replace=False)
        values[chosen] = rng.integers(0, 9, len(chosen))  # sums of whole numbers are exact
        tree = tree.set(jnp.asarray(chosen, "int32"), jnp.asarray(values[chosen], "float32"))
        assert float(tree.total) == values.sum()
        np.testing.assert_array_equal(tree.leaves(jnp.arange(num_leaves)), values)
        if values.sum() == 0:
            continue
        points = rng.uniform(0, values.sum(), 200).astype("float32")
        np.testing.assert_array_equal(
            tree.find(jnp.asarray(points)), np.searchsorted(np.cumsum(values), points, side="right")
        )


def test_leaves_of_zero_are_never_found():
    """Not even where rounding leads beyond the last positive leaf."""
    values = jnp.asarray([0.0, 0.1, 0.0, 0.3, 1e-8, 0.0, 0.0, 0.0])
    tree = init_sum_tree(8).set(jnp.arange(8), values)
    edges = jnp.asarray([0.0, float(tree.total), float(tree.total) * (1 + 1e-6), 0.1, 0.4])
    assert (np.asarray(values)[np.asarray(tree.find(edges))] > 0).all()


def test_equal_indices_leave_consistent_sums():
    tree = init_sum_tree(4).set(jnp.asarray([2, 2, 1]), jnp.asarray([3.0, 3.0, 1.0]))
    assert float(tree.total) == 4.0


def test_frequencies_are_proportional_to_priorities():
    """Chi-square test of 200,000 draws, at a level at which one in ten thousand true samplers fails."""
    errors = np.array([0.0, 0.5, 1.0, 2.0, 4.0, 0.1, 7.0, 3.0])
    sampler = PrioritizedSampler(alpha=0.7, epsilon=0.01)
    state = sampler.add(sampler.init(8), jnp.arange(8), jnp.ones(8, bool))
    state = sampler.revise(state, jnp.arange(8), jnp.asarray(errors, "float32"))
    probs = (errors + 0.01) ** 0.7
    probs /= probs.sum()
    draw = jax.jit(lambda key: sampler.draw(state, 200, key))
    # draws of one batch are stratified, hence less scattered than independent ones: one from each batch is taken
    indices = np.concatenate([np.asarray(draw(jax.random.key(i)))[[i % 200]] for i in range(2_000)])
    assert stats.chisquare(np.bincount(indices, minlength=8), 2_000 * probs).pvalue > 1e-4
    batches = np.concatenate([np.asarray(draw(jax.random.key(i))) for i in range(1_000)])
    np.testing.assert_allclose(np.bincount(batches, minlength=8) / len(batches), probs, atol=0.001)


def test_weights_correct_the_sampling_by_the_formula():
    sampler = PrioritizedSampler(alpha=1.0, beta=0.5, beta_updates=100, epsilon=0.0)
    tree = init_sum_tree(4).set(jnp.arange(4), jnp.asarray([1.0, 2.0, 5.0, 0.0]))
    state, indices = Priorities(tree, jnp.asarray(5.0)), jnp.asarray([0, 1, 2, 2])
    for update_index, beta in ((0, 0.5), (50, 0.75), (100, 1.0), (1_000, 1.0)):
        weights = sampler.weights(state, indices, jnp.int32(3), jnp.int32(update_index))
        expected = (3 * np.array([1, 2, 5, 5]) / 8) ** -beta
        np.testing.assert_allclose(weights, expected / expected.max(), rtol=1e-5)


def test_new_windows_have_the_largest_priority_so_far():
    sampler = PrioritizedSampler(alpha=1.0, epsilon=0.0)
    state = sampler.add(sampler.init(4), jnp.asarray([0, 1]), jnp.asarray([True, True]))
    state = sampler.revise(state, jnp.asarray([0]), jnp.asarray([3.0]))
    state = sampler.revise(state, jnp.asarray([0]), jnp.asarray([0.5]))
    state = sampler.add(state, jnp.asarray([2, 3]), jnp.asarray([True, False]))
    np.testing.assert_array_equal(state.tree.leaves(jnp.arange(4)), [0.5, 1.0, 3.0, 0.0])


def sample_often(store, steps):
    """Twenty batches as one, so that every window of the same priority is very likely among them."""

    def sample(state, written, update_index, key):
        batches = jax.vmap(lambda key: store.sample(state, steps, (), written, update_index, key, ()))(
            jax.random.split(key, 20)
        )
        return jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1).reshape(x.shape[1], -1, *x.shape[3:]), batches.steps)

    return sample


@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("interval", [1, 2, 5])
def test_every_readable_window_is_sampled_and_no_other(length, interval):
    """Before the buffer is full and after it was overwritten three times."""
    feed = Replay(
        buffer_size=30, batch_size=30, update_interval=interval, sequence_length=length, sampler=PrioritizedSampler()
    )
    store, steps = feed.make_store(1_000), coded_steps(40)
    state = store.init(jax.tree.map(lambda x: x[0, 0], steps), ENVS)
    add, sample = jax.jit(store.add), jax.jit(sample_often(store, steps))
    for start in range(0, 40, interval):
        state = add(state, jax.tree.map(lambda x, t=start: x[t : t + interval], steps), jnp.int32(start))
        written = start + interval
        if written < length:
            continue
        sampled = sample(state, jnp.int32(written), jnp.int32(0), jax.random.key(start))
        oldest = max(written - state.buffer.num_rows, 0)
        expected = {(t, env) for t in range(oldest, written - length + 1) for env in range(ENVS)}
        reward = np.asarray(sampled.reward)
        ticks = np.floor(reward[0] + 0.05).astype(int)
        envs = np.round((reward[0] - ticks) * 10).astype(int)
        assert set(zip(ticks.tolist(), envs.tolist(), strict=True)) == expected
        np.testing.assert_allclose(reward, ticks + np.arange(length)[:, None] + envs / 10, rtol=1e-5)


def test_priorities_of_overwritten_windows_are_gone():
    """The windows with the most extreme priorities are overwritten, and new ones begin with the largest."""
    feed = Replay(buffer_size=8, batch_size=8, sampler=PrioritizedSampler(alpha=1.0, epsilon=0.0))
    store, steps = feed.make_store(100), coded_steps(20)
    steps = jax.tree.map(lambda x: x[:, :1], steps)
    state = store.init(jax.tree.map(lambda x: x[0, 0], steps), 1)
    for t in range(8):
        state = store.add(state, jax.tree.map(lambda x, t=t: x[t : t + 1], steps), jnp.int32(t))
    batch = store.sample(state, steps, (), jnp.int32(8), jnp.int32(0), jax.random.key(0), ())
    part = store.revisable(state)
    part = store.revise(
        part, batch, Report({}, jnp.asarray(np.where(np.asarray(batch.indices) == 0, 50.0, 0.125), "float32"))
    )
    state = store.with_revised(state, part)
    assert float(state.sampler.tree.leaves(jnp.asarray([0]))[0]) == 50.0
    state = store.add(state, jax.tree.map(lambda x: x[8:9], steps), jnp.int32(8))  # in place of window 0
    assert float(state.sampler.tree.leaves(jnp.asarray([0]))[0]) == 50.0  # the largest so far
    part = store.revise(
        store.revisable(state),
        store.sample(state, steps, (), jnp.int32(9), jnp.int32(0), jax.random.key(1), ()),
        Report({}, jnp.full(8, 0.25)),
    )
    leaves = np.asarray(part.tree.leaves(jnp.arange(8)))
    assert leaves[0] == 0.25 and set(leaves.tolist()) <= {0.125, 0.25, 1.0}


@pytest.mark.long
@pytest.mark.parametrize("length", [1, 3])
def test_frames_that_were_overwritten_are_never_sampled(length):
    """Episodes of two steps take more frames than there are, so that the oldest rows cannot be read any more."""
    steps = stacked_steps(80, 0.5, "its own")
    feed = Replay(
        buffer_size=60,
        batch_size=60,
        update_interval=2,
        sequence_length=length,
        frame_stack=COUNT,
        sampler=PrioritizedSampler(),
    )
    store = feed.make_store(1_000)
    state = store.init(jax.tree.map(lambda x: np.asarray(x[0, 0]), steps), ENVS)
    add, sample = jax.jit(store.add), jax.jit(sample_often(store, steps))
    fewer = 0
    for start in range(0, 80, 2):
        state = add(state, jax.tree.map(lambda x, t=start: x[t : t + 2], steps), jnp.int32(start))
        written = start + 2
        if written < length:
            continue
        sampled = sample(state, jnp.int32(written), jnp.int32(0), jax.random.key(start))
        available = int(state.buffer.num_available(jnp.int32(written)))
        fewer += available < min(written, state.buffer.num_rows)
        expected = {(t, env) for t in range(written - available, written - length + 1) for env in range(ENVS)}
        reward = np.asarray(sampled.reward)
        ticks = np.floor(reward[0] + 0.05).astype(int)
        envs = np.round((reward[0] - ticks) * 10).astype(int)
        assert set(zip(ticks.tolist(), envs.tolist(), strict=True)) == expected
        image = np.asarray(sampled.view.observation["image"])[0]
        np.testing.assert_array_equal(image, np.asarray(steps.view.observation["image"])[ticks, envs])
    assert fewer > 10


def test_a_method_without_priorities_is_refused():
    feed = Replay(buffer_size=8, batch_size=4, sampler=PrioritizedSampler())
    store, steps = feed.make_store(100), coded_steps(4)
    state = store.init(jax.tree.map(lambda x: x[0, 0], steps), ENVS)
    batch = store.sample(state, steps, (), jnp.int32(4), jnp.int32(0), jax.random.key(0), ())
    with pytest.raises(UserError, match="reports no priorities"):
        store.revise(store.revisable(state), batch, Report({}))
