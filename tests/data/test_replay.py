"""Ring buffer of transitions: windows, wrap-around, masks and n-step targets, with steps that encode their origin."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from synthetic_steps import CHUNK, ENVS, coded_steps

from thespis.core.records import Batch, Transition
from thespis.data import ring_buffer
from thespis.data.stored_steps import BufferSteps
from thespis.learners.off_policy.critic_updates import n_step_batch


def filled_ring(ticks: int, capacity: int) -> tuple[ring_buffer.RingBuffer, Transition]:
    steps = coded_steps(ticks)
    ring = ring_buffer.init_ring_buffer(jax.tree.map(lambda x: x[0, 0], steps), capacity, ENVS, CHUNK)
    write = jax.jit(ring_buffer.RingBuffer.add)
    for t in range(0, ticks, CHUNK):
        ring = write(ring, jax.tree.map(lambda x, t=t: x[t : t + CHUNK], steps), jnp.int32(t))
    return ring, steps


def sample(ring, ticks, length, batch=4000, seed=0):
    steps, mask = jax.jit(ring_buffer.RingBuffer.sample, static_argnums=(3, 4))(
        ring, jnp.int32(ticks), jax.random.key(seed), batch, length
    )
    return jax.tree.map(np.asarray, steps), np.asarray(mask)


@pytest.mark.parametrize("ticks", [6, 10, 12, 26, 40])
@pytest.mark.parametrize("length", [1, 3, 6])
def test_windows_are_consecutive_steps_of_one_environment(ticks, length):
    """Before the ring is full, when full, and overwritten up to four times, at all positions of the write head."""
    ring, _ = filled_ring(ticks, capacity=30)
    assert ring.num_rows == 10
    steps, _ = sample(ring, ticks, length)
    tick = np.floor(steps.reward).astype(int)
    oldest = max(ticks - 10, 0)
    np.testing.assert_array_equal(np.diff(tick, axis=0), 1)  # consecutive: never across the write head
    assert tick.min() == oldest and tick.max() == ticks - 1
    envs = steps.view.observation[..., 0]
    np.testing.assert_array_equal(envs, np.broadcast_to(envs[0], envs.shape))
    np.testing.assert_allclose(steps.reward - tick, envs / 10, atol=1e-4)
    # all possible starts in all environments, about equally often
    starts, counts = np.unique(np.stack([tick[0], envs[0]]), axis=1, return_counts=True)
    assert starts.shape[1] == (ticks - oldest - length + 1) * ENVS
    assert np.all(np.abs(counts - 4000 / len(counts)) < 6 * np.sqrt(4000 / len(counts)))


@pytest.mark.parametrize("ticks", [6, 10, 26, 40])
def test_all_stored_steps_in_order(ticks):
    """The newest ticks of all environments, from the oldest, before the ring is full and after it is overwritten."""
    ring, steps = filled_ring(ticks, capacity=30)
    stored = BufferSteps(ring, jnp.int32(ticks))
    assert stored.capacity == 30 and int(stored.size) == min(ticks, 10) * ENVS
    taken = jax.jit(lambda view: view.take(jnp.arange(min(ticks, 10) * ENVS)))(stored)
    newest = jax.tree.map(lambda x: x[max(ticks - 10, 0) :].reshape(-1, *x.shape[2:]), steps)
    jax.tree.map(np.testing.assert_array_equal, taken, newest)


@pytest.mark.parametrize("length", [2, 4])
def test_mask_keeps_one_episode_up_to_its_end(length):
    ring, _ = filled_ring(26, capacity=30)
    steps, mask = sample(ring, 26, length)
    ended = steps.terminated | steps.truncated
    episodes = steps.view.observation[..., 1]
    assert mask[0].all()
    for row in range(mask.shape[1]):
        k = mask[:, row].sum()
        assert mask[:k, row].all()  # a prefix
        assert not ended[: k - 1, row].any()
        assert k == length or ended[k - 1, row]  # shorter only because the episode ended
        assert len(set(episodes[:k, row])) == 1
        np.testing.assert_array_equal(np.diff(steps.view.observation[:k, row, 2]), 1)
    assert 0 < (mask.sum(0) < length).mean() < 1


def test_n_step_targets_bootstrap_from_the_last_observation_with_their_own_discount():
    ring, _ = filled_ring(26, capacity=30)
    length, gamma = 4, 0.9
    steps, mask = sample(ring, 26, length)
    data = n_step_batch(Batch(jax.tree.map(jnp.asarray, steps), jnp.asarray(mask), (), jnp.int32(0)), gamma)
    for row in range(0, mask.shape[1], 7):
        k = mask[:, row].sum()
        start, end = steps.view.observation[0, row], np.asarray(data.next_view.observation)[row]
        np.testing.assert_array_equal(
            end, [start[0], start[1], start[2] + k]
        )  # same environment, same episode, k steps later
        expected = sum(gamma**i * steps.reward[i, row] for i in range(k))
        assert data.reward[row] == pytest.approx(expected, rel=1e-5)
        factor = 0.0 if steps.terminated[k - 1, row] else gamma**k
        assert data.discount[row] == pytest.approx(factor, rel=1e-5)


def test_ring_contains_the_last_transitions():
    ring, steps = filled_ring(26, capacity=30)
    order = [t % 10 for t in range(16, 26)]
    np.testing.assert_array_equal(np.asarray(ring.steps.reward)[order], np.asarray(steps.reward)[16:])


def test_capacity_is_rounded_up_to_chunks():
    example = jax.tree.map(lambda x: x[0, 0], coded_steps(1))
    assert ring_buffer.init_ring_buffer(example, 30, ENVS, 4).num_rows == 12  # 10 ticks, rounded up to chunks of 4
    assert ring_buffer.init_ring_buffer(example, 1, ENVS, 5).num_rows == 10  # never fewer than two chunks
    assert ring_buffer.init_ring_buffer(example, 31, ENVS, 1).num_rows == 11
