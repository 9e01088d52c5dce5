"""Stores: where experience is kept between acting and learning. One class per feed, with one interface."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.feeds import Episodes, Feed, Replay, Rollouts
from thespis.core.records import Batch, EpisodeStats, Transition
from thespis.data import frame_buffer, ring_buffer

ReplayBuffer = ring_buffer.RingBuffer | frame_buffer.FrameStackBuffer
"""The buffers for replay: both have the same methods, and all their leaves are ``[row, env, ...]``."""


@dataclasses.dataclass(frozen=True)
class RolloutStore:
    """On-policy store without memory: the batch is the rollout that was just collected."""

    feed: Rollouts
    group_size: ClassVar[int] = 0

    def num_warmup_blocks(self, num_envs: int) -> int:
        """Number of blocks collected before the first update."""
        return 0

    def init(self, example: Transition, num_envs: int) -> PyTree:
        """An empty store for one seed."""
        return ()

    def add(self, store: PyTree, steps: Transition, num_written: Int[Array, ""]) -> PyTree:
        """The store with ``steps[time, env]`` added after ``num_written`` ticks."""
        return store

    def sample(
        self,
        store: PyTree,
        rollout: Transition,
        memory: Any,
        num_written: Int[Array, ""],
        update_index: Array,
        key: Key[Array, ""],
    ) -> Batch:
        """The batch for the next update; ``rollout`` was just collected and ``memory`` is the actor's before it."""
        return Batch(rollout, jnp.ones(rollout.reward.shape, bool), memory, update_index)

    def filter_stats(self, stats: EpisodeStats) -> EpisodeStats:
        """The episode statistics that count: all."""
        return stats

    def check(self, store: PyTree) -> None:
        """Nothing is stored, so nothing is checked."""


@dataclasses.dataclass(frozen=True)
class EpisodeStore:
    """Episode store without memory: the batch is the first episode of every environment in the latest rollout."""

    feed: Episodes

    @property
    def group_size(self) -> int:
        """Number of adjacent environments with the same initial state, reset in every block; 0: no groups or resets."""
        return self.feed.group_size

    def num_warmup_blocks(self, num_envs: int) -> int:
        """Number of blocks collected before the first update. Raises ``UserError`` if groups are not complete."""
        if self.feed.max_steps < 1 or self.feed.group_size < 1 or num_envs % self.feed.group_size:
            raise UserError(
                f"{num_envs} environments do not make groups of {self.feed.group_size}, or episodes have no limit "
                f"of turns ({self.feed.max_steps}): --envs N, or feed.max_steps=N"
            )
        return 0

    def init(self, example: Transition, num_envs: int) -> PyTree:
        """An empty store for one seed."""
        return ()

    def add(self, store: PyTree, steps: Transition, num_written: Int[Array, ""]) -> PyTree:
        """The store with ``steps[time, env]`` added after ``num_written`` ticks."""
        return store

    def sample(
        self,
        store: PyTree,
        rollout: Transition,
        memory: Any,
        num_written: Int[Array, ""],
        update_index: Array,
        key: Key[Array, ""],
    ) -> Batch:
        """The batch for the next update: ``rollout``, masked after the first episode of every environment."""
        return Batch(rollout, ring_buffer.first_episode_mask(rollout.done), (), update_index)

    def filter_stats(self, stats: EpisodeStats) -> EpisodeStats:
        """The episode statistics that count: those of first episodes."""
        return dataclasses.replace(stats, done=stats.done & ring_buffer.first_episode_mask(stats.done))

    def check(self, store: PyTree) -> None:
        """Nothing is stored, so nothing is checked."""


@dataclasses.dataclass(frozen=True)
class ReplayStore:
    """A replay buffer, no larger than a run of ``total_steps`` transitions can fill.

    It stores transitions whole or, if the feed has a ``frame_stack``, every frame once.
    """

    feed: Replay
    total_steps: int
    group_size: ClassVar[int] = 0

    def num_warmup_blocks(self, num_envs: int) -> int:
        """Number of blocks collected before the first update: enough for ``learning_starts`` and for one window."""
        ticks = max(-(-self.feed.learning_starts // num_envs), self.feed.sequence_length)
        blocks = -(-ticks // self.feed.collect_steps)
        # the block that ends the warm-up also learns
        return max(blocks - 1, 0)

    def init(self, example: Transition, num_envs: int) -> ReplayBuffer:
        """An empty store for one seed."""
        feed = self.feed
        if feed.buffer_size < max(feed.sequence_length * num_envs, feed.batch_size):
            raise UserError(
                f"the replay buffer of {feed.buffer_size} transitions is smaller than one batch ({feed.batch_size}) "
                f"or one window ({feed.sequence_length} steps of {num_envs} environments): raise feed.buffer_size"
            )
        buffer_args = (example, min(feed.buffer_size, self.total_steps), num_envs, feed.update_interval)
        return (
            frame_buffer.init_frame_buffer(*buffer_args, feed.sequence_length, feed.frame_stack)
            if feed.frame_stack
            else ring_buffer.init_ring_buffer(*buffer_args)
        )

    def add(self, store: ReplayBuffer, steps: Transition, num_written: Int[Array, ""]) -> ReplayBuffer:
        """The store with ``steps[time, env]`` added after ``num_written`` ticks."""
        return store.add(steps, num_written)

    def sample(
        self,
        store: ReplayBuffer,
        rollout: Transition,
        memory: Any,
        num_written: Int[Array, ""],
        update_index: Array,
        key: Key[Array, ""],
    ) -> Batch:
        """The batch for the next update: windows sampled uniformly; replayed windows start without memory."""
        steps, mask = store.sample(num_written, key, self.feed.batch_size, self.feed.sequence_length)
        return Batch(steps, mask, (), update_index)

    def filter_stats(self, stats: EpisodeStats) -> EpisodeStats:
        """The episode statistics that count: all."""
        return stats

    def check(self, store: ReplayBuffer) -> None:
        """Check the stored experience of any number of seeds.

        Raises:
            UserError: if observations are not the stacks of frames that the feed promises.
        """
        store.check_stacks()


Store = RolloutStore | EpisodeStore | ReplayStore


def make_store(feed: Feed, total_steps: int) -> Store:
    """The store of a feed of fresh experience, for a run of ``total_steps`` transitions per seed."""
    match feed:
        case Rollouts():
            return RolloutStore(feed)
        case Episodes():
            return EpisodeStore(feed)
        case Replay():
            return ReplayStore(feed, total_steps)
    raise UserError(f"a method fed by {type(feed).__name__} learns from a dataset: use --data DIR, not an environment")
