"""Replay ring buffers of transitions, time first: ``[rows, env, ...]``, as pure functions of their state.

The number of written ticks is the loop's counter, the same for all seeds, so that writing stays a
slice update and sampling stays a gather under ``vmap``.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, PyTree

from thespis.core.records import Transition
from thespis.runtime.vmap_exact import take_sharded


class RingBuffer(eqx.Module):
    """A ring buffer of whole transitions ``[rows, env, ...]``."""

    steps: Transition

    @property
    def num_rows(self) -> int:
        """Number of rows (ticks)."""
        return self.steps.reward.shape[0]

    def add(self, steps: Transition, num_written: Int[Array, ""]) -> RingBuffer:
        """The buffer with ``[chunk, env]`` transitions added after ``num_written`` ticks, in place of the oldest."""
        return RingBuffer(write_rows(self.steps, steps, num_written % self.num_rows))

    def sample(
        self, num_written: Int[Array, ""], key: Key[Array, ""], batch_size: int, sequence_length: int
    ) -> tuple[Transition, Bool[Array, "length batch"]]:
        """Sample ``batch_size`` windows of ``sequence_length`` consecutive steps of an environment, uniformly by start.

        The mask is true up to and including the first end of an episode in a window. No window spans the write
        position: starts are counted from the oldest row. At least ``sequence_length`` ticks must have been written.
        """
        num_available = self.num_available(num_written)
        return self.take(*sample_windows(self.steps, num_written, num_available, key, batch_size, sequence_length))

    def take(
        self, rows: Int[Array, "length batch"], envs: Int[Array, " batch"]
    ) -> tuple[Transition, Bool[Array, "length batch"]]:
        """The windows with these rows and environments, and their mask as in :meth:`sample`."""
        steps = take_sharded(self.steps, rows, envs)
        return steps, first_episode_mask(steps.done)

    def num_available(self, num_written: Int[Array, ""]) -> Int[Array, ""]:
        """Number of newest ticks that can be read."""
        return jnp.minimum(num_written, self.num_rows)

    def max_lost(self, chunk_size: int) -> int:
        """The most ticks, besides those that are overwritten, that can become unreadable with one write: none."""
        return 0

    def check_stacks(self) -> None:
        """Nothing to check: whole observations can always be stored."""


def init_ring_buffer(example: Transition, buffer_size: int, num_envs: int, chunk_size: int) -> RingBuffer:
    """An empty buffer for ``buffer_size`` transitions of ``num_envs`` environments, shaped as the ``example``.

    ``chunk_size`` is the number of ticks written at a time; the number of rows is a multiple of it.
    """
    return RingBuffer(allocate(example, num_rows_for(buffer_size, num_envs, chunk_size), num_envs))


def num_rows_for(buffer_size: int, num_envs: int, chunk_size: int) -> int:
    """Number of rows for ``buffer_size`` transitions: a multiple of ``chunk_size``, and at least two chunks."""
    return max(-(-buffer_size // (num_envs * chunk_size)), 2) * chunk_size


def allocate(example: PyTree, num_rows: int, num_envs: int) -> PyTree:
    """Zeros ``[rows, env, ...]`` for every leaf of an example."""
    return jax.tree.map(lambda x: jnp.zeros((num_rows, num_envs, *x.shape), x.dtype), example)


def write_rows(buffer: PyTree, steps: PyTree, row: Int[Array, ""]) -> PyTree:
    """Write ``steps[chunk, env, ...]`` into ``buffer[rows, env, ...]``, starting at ``row``."""
    return jax.tree.map(lambda x, y: jax.lax.dynamic_update_slice_in_dim(x, y, row, axis=0), buffer, steps)


def sample_windows(
    steps: Transition,
    num_written: Int[Array, ""],
    num_available: Int[Array, ""],
    key: Key[Array, ""],
    batch_size: int,
    sequence_length: int,
) -> tuple[Int[Array, "length batch"], Int[Array, " batch"]]:
    """Rows and environments of ``batch_size`` windows, uniform over the newest ``num_available`` ticks."""
    rows, envs = steps.reward.shape
    start_key, env_key = jax.random.split(key)
    starts = jax.random.randint(start_key, (batch_size,), 0, num_available - sequence_length + 1)
    rows_of_windows = (num_written - num_available + starts[None] + jnp.arange(sequence_length)[:, None]) % rows
    return rows_of_windows, jax.random.randint(env_key, (batch_size,), 0, envs)


def first_episode_mask(done: Bool[Array, "length batch"]) -> Bool[Array, "length batch"]:
    """True up to and including the first end along the first axis."""
    before = jnp.cumsum(done.astype("int32"), axis=0) - done
    return before == 0
