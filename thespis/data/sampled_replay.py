"""A replay buffer whose windows are chosen by a sampler."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.feeds import ReplaySampler, Store, StoredSteps
from thespis.core.records import Batch, Report, Transition
from thespis.data import frame_buffer, ring_buffer

ReplayBuffer = ring_buffer.RingBuffer | frame_buffer.FrameStackBuffer
"""The buffers for replay: both have the same methods, and all their leaves are ``[row, env, ...]``."""


class SampledBuffer(eqx.Module):
    """A replay buffer and the state of its sampler."""

    buffer: ReplayBuffer
    sampler: PyTree


@dataclasses.dataclass(frozen=True)
class SampledReplayStore(Store):
    """A replay buffer whose windows a sampler chooses, such as that of :mod:`thespis.data.prioritized`."""

    feed: Any
    base: Any
    sampler: ReplaySampler

    def num_warmup_blocks(self, num_envs: int) -> int:
        """Number of blocks collected before the first update."""
        return self.base.num_warmup_blocks(num_envs)

    def init(self, example: Transition, num_envs: int) -> SampledBuffer:
        """An empty store for one seed."""
        buffer = self.base.init(example, num_envs)
        if buffer.num_rows < self.feed.update_interval + self.feed.sequence_length:
            raise UserError(
                f"{buffer.num_rows} steps of {num_envs} environments in the replay buffer are fewer than "
                f"feed.update_interval and feed.sequence_length together: raise feed.buffer_size, or --steps"
            )
        return SampledBuffer(buffer, self.sampler.init(buffer.num_rows * num_envs))

    def add(self, state: SampledBuffer, steps: Transition, num_written: Int[Array, ""]) -> SampledBuffer:
        """The store with ``steps[time, env]`` added after ``num_written`` ticks."""
        buffer = state.buffer.add(steps, num_written)
        chunk, length = steps.reward.shape[0], self.feed.sequence_length
        after = num_written + chunk
        # windows that began before and are complete now, and those that begin now
        ticks = num_written - (length - 1) + jnp.arange(chunk + length - 1)
        is_complete = (ticks >= 0) & (ticks + length <= after)
        sampler = state.sampler
        if (lost := buffer.max_lost(chunk)) > 0:
            oldest = after - buffer.num_available(after) - 1 - jnp.arange(lost)
            is_gone = (oldest >= 0) & (oldest >= after - buffer.num_rows)
            sampler = self.sampler.forget(sampler, *_windows(buffer, oldest, is_gone))
        return SampledBuffer(buffer, self.sampler.add(sampler, *_windows(buffer, ticks, is_complete)))

    def sample(
        self,
        state: SampledBuffer,
        rollout: Transition,
        memory: Any,
        num_written: Int[Array, ""],
        update_index: Array,
        key: Key[Array, ""],
        data: PyTree,
    ) -> Batch:
        """The batch for the next update, with its weights."""
        length, num_envs = self.feed.sequence_length, state.buffer.steps.reward.shape[1]
        indices = self.sampler.draw(state.sampler, self.feed.batch_size, key)
        rows = (indices // num_envs + jnp.arange(length)[:, None]) % state.buffer.num_rows
        steps, mask = state.buffer.take(rows, indices % num_envs)
        num_windows = (state.buffer.num_available(num_written) - length + 1) * num_envs
        weights = self.sampler.weights(state.sampler, indices, num_windows, update_index)
        return Batch(steps, mask, (), update_index, weights, indices)

    def stored_steps(self, state: SampledBuffer, num_written: Int[Array, ""]) -> StoredSteps:
        """All steps that are stored, as without a sampler."""
        return self.base.stored_steps(state.buffer, num_written)

    def revisable(self, state: SampledBuffer) -> PyTree:
        """The state of the sampler, which every update changes."""
        return state.sampler

    def with_revised(self, state: SampledBuffer, part: PyTree) -> SampledBuffer:
        """The store with another state of the sampler."""
        return SampledBuffer(state.buffer, part)

    def revise(self, part: PyTree, batch: Batch, report: Report) -> PyTree:
        """The sampler's state after an update.

        Raises:
            UserError: if the method has reported no priorities.
        """
        if report.priorities is None or batch.indices is None:
            raise UserError("this method reports no priorities and cannot use feed.sampler: set it to none")
        return self.sampler.revise(part, batch.indices, report.priorities)

    def env_axes(self, state: SampledBuffer) -> PyTree:
        """The axis of each leaf that indexes environments: the sampler's state has none."""
        none = jax.tree.map(lambda _: -1, state.sampler)
        return self.base.env_axes(state.buffer), none

    def check(self, state: SampledBuffer) -> None:
        """Check the stored experience, as without a sampler."""
        self.base.check(state.buffer)

    def check_growth(self, steps: int) -> None:
        """Check that the run can go on to ``steps`` transitions, as without a sampler."""
        self.base.check_growth(steps)


def _windows(
    buffer: ReplayBuffer, ticks: Int[Array, " tick"], condition: Bool[Array, " tick"]
) -> tuple[Int[Array, " n"], Bool[Array, " n"]]:
    """The windows of all environments that begin with these ticks, and the condition of each."""
    num_envs = buffer.steps.reward.shape[1]
    windows = (ticks % buffer.num_rows)[:, None] * num_envs + jnp.arange(num_envs)
    return windows.reshape(-1), jnp.repeat(condition, num_envs)
