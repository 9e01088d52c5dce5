"""Feeds of the package: rollouts, episodes, replay and datasets, each with its store or sampler."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.feeds import BranchedSampler, DatasetSampler, Feed, ReplaySampler, RolloutFeed, Store, WindowFeed
from thespis.core.records import Batch, EpisodeStats, Transition
from thespis.data import frame_buffer, length_buckets, ring_buffer, samplers
from thespis.data.hindsight import GoalStrategy, HindsightStore
from thespis.data.hindsight import HindsightFuture as HindsightFuture
from thespis.data.mix import Mix, mix
from thespis.data.prioritized import PrioritizedSampler as PrioritizedSampler
from thespis.data.sampled_replay import ReplayBuffer, SampledReplayStore
from thespis.data.stored_steps import BufferSteps


@dataclasses.dataclass(frozen=True)
class Rollouts(RolloutFeed):
    """On-policy rollouts: ``num_steps`` steps of every environment, then ``num_updates`` updates on them."""

    num_steps: int = 128
    """Steps of every environment between two learning phases."""
    num_updates: int = 1
    """Updates on each rollout."""
    policy_lag: int = 0
    """Learning phases by which the acting policy lags behind in the host loop."""
    num_envs: int = 8
    """Environments per seed, unless the run sets another number."""

    @property
    def batch_shape(self) -> tuple[int, int]:
        """Time steps and rows of a batch."""
        return self.num_steps, self.num_envs

    @property
    def collect_steps(self) -> int:
        """Steps of every environment between two learning phases."""
        return self.num_steps

    def make_store(self, total_steps: int) -> Store:
        """The store for a run of ``total_steps`` transitions per seed."""
        return RolloutStore(self)

    def for_run(self, num_envs: int) -> Rollouts:
        """The feed with that number of environments."""
        return dataclasses.replace(self, num_envs=num_envs)


@dataclasses.dataclass(frozen=True)
class RolloutStore(Store):
    """On-policy store without memory: the batch is the rollout that was just collected."""

    feed: Rollouts

    def sample(
        self,
        state: PyTree,
        rollout: Transition,
        memory: Any,
        num_written: Int[Array, ""],
        update_index: Array,
        key: Key[Array, ""],
        data: PyTree,
    ) -> Batch:
        """The batch for the next update; ``rollout`` was just collected and ``memory`` is the actor's before it."""
        return Batch(rollout, jnp.ones(rollout.reward.shape, bool), memory, update_index)


@dataclasses.dataclass(frozen=True)
class Episodes(Feed):
    """Whole episodes: one of every environment, all started together, then ``num_updates`` updates on them.

    Environments come in groups of ``group_size`` with the same parameters and the same initial state, in adjacent rows
    of the batch. Steps after an episode's end are masked until the longest episode is over.
    """

    collects: ClassVar[bool] = True
    whole_episodes: ClassVar[bool] = True
    is_fresh: ClassVar[bool] = True

    max_steps: int = 0
    """Largest number of steps of an episode; 0: the environment's time limit."""
    group_size: int = 1
    """Episodes per initial state."""
    num_updates: int = 1
    """Updates on each set of episodes."""
    policy_lag: int = 0
    """Sets of episodes by which the acting policy lags behind in the host loop."""
    num_envs: int = 64
    """Environments per seed, unless the run sets another number: a multiple of ``group_size``."""

    @property
    def batch_shape(self) -> tuple[int, int]:
        """Time steps and rows of a batch."""
        return self.max_steps, self.num_envs

    @property
    def collect_steps(self) -> int:
        """Steps of every environment between two learning phases."""
        return self.max_steps

    def make_store(self, total_steps: int) -> Store:
        """The store for a run of ``total_steps`` transitions per seed."""
        return EpisodeStore(self)

    def for_time_limit(self, time_limit: int | None) -> Episodes:
        """The feed with the environment's time limit, unless it has a limit of its own."""
        return self if self.max_steps or not time_limit else dataclasses.replace(self, max_steps=time_limit)


@dataclasses.dataclass(frozen=True)
class EpisodeStore(Store):
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

    def sample(
        self,
        state: PyTree,
        rollout: Transition,
        memory: Any,
        num_written: Int[Array, ""],
        update_index: Array,
        key: Key[Array, ""],
        data: PyTree,
    ) -> Batch:
        """The batch for the next update: ``rollout``, masked after the first episode of every environment."""
        return Batch(rollout, ring_buffer.first_episode_mask(rollout.done), (), update_index)

    def filter_stats(self, stats: EpisodeStats) -> EpisodeStats:
        """The episode statistics that count: those of first episodes."""
        return dataclasses.replace(stats, done=stats.done & ring_buffer.first_episode_mask(stats.done))


@dataclasses.dataclass(frozen=True)
class Replay(WindowFeed):
    """Replay buffer: windows sampled, uniformly by default, from the last ``buffer_size`` transitions.

    After ``learning_starts`` transitions, every ``update_interval`` steps of all environments are followed by
    ``num_updates`` updates, each on ``batch_size`` windows of ``sequence_length`` consecutive steps (cut at an
    episode's end).
    """

    collects: ClassVar[bool] = True
    reads_datasets: ClassVar[bool] = True

    buffer_size: int = 1_000_000
    """Transitions stored per seed; never more than the run has steps."""
    batch_size: int = 256
    """Windows per update."""
    learning_starts: int = 1_000
    """Transitions collected per seed before the first update."""
    update_interval: int = 1
    """Steps of all environments between two learning phases."""
    num_updates: int = 1
    """Updates in each learning phase."""
    sequence_length: int = 1
    """Steps per window: more than one gives n-step targets."""
    policy_lag: int = 1
    """Learning phases by which the acting policy lags behind in the host loop."""
    num_envs: int = 1
    """Environments per seed, unless the run sets another number."""
    frame_stack: int = 0
    """Number of stacked frames along an observation's first axis, oldest first, if each step adds one: every frame is
    then stored once. With episodes shorter than 32 steps some of the oldest transitions are not stored. 0: observations
    are stored whole, as those of datasets always are."""
    sampler: ReplaySampler | None = None
    """How windows are sampled: None (uniformly), PrioritizedSampler, or your own module:Class. For methods that weight
    their losses: dqn, c51, ddpg, td3 and sac."""
    demos: str | None = None
    """A dataset that part of every batch comes from, named as for --data: demonstrations, or an offline dataset that
    online learning begins with. None: every batch comes from the buffer."""
    demo_share: float = 0.5
    """Share of the batch that comes from ``demos``."""
    relabel: GoalStrategy | None = None
    """Hindsight experience replay: None, HindsightFuture (goals that the rest of an episode achieved), HindsightFinal
    (the last of them), or your own module:Class. For environments with goals in their observations
    (docs/using-methods.md)."""

    @property
    def batch_shape(self) -> tuple[int, int]:
        """Time steps and rows of a batch."""
        return self.sequence_length, self.batch_size

    @property
    def collect_steps(self) -> int:
        """Steps of every environment between two learning phases."""
        return self.update_interval

    def mixed(self) -> Mix:
        """The mix of the buffer, as the source ``own``, with the dataset, as the source ``demos``."""
        demos = LoggedTransitions(sequence_length=self.sequence_length, data=self.demos)
        own = dataclasses.replace(self, demos=None)
        return mix(
            {"demos": demos, "own": own}, {"demos": self.demo_share, "own": 1.0 - self.demo_share}, self.batch_size
        )

    def load_data(self, read: Callable[[str], tuple[Transition, int]]) -> PyTree:
        """The sampler of :attr:`demos`, if there are any."""
        return () if self.demos is None else self.mixed().load_data(read)

    def with_collect_steps(self, collect_steps: int) -> Replay:
        """The feed for blocks of that many steps."""
        return dataclasses.replace(self, update_interval=collect_steps)

    def make_store(self, total_steps: int) -> Store:
        """The store for a run of ``total_steps`` transitions per seed."""
        if self.demos is not None:
            return self.mixed().make_store(total_steps)
        store = ReplayStore(self, total_steps)
        store = store if self.sampler is None else SampledReplayStore(self, store, self.sampler)
        return store if self.relabel is None else HindsightStore(self, store, self.relabel)

    def make_sampler(self, steps: Transition, group_size: int = 0) -> DatasetSampler:
        """The sampler of the dataset ``steps[time]``."""
        if self.demos is not None:
            raise UserError("feed.demos are for learning in an environment; a run with --data has one dataset")
        if self.sampler is not None:
            raise UserError("feed.sampler is for replay buffers; a dataset is sampled uniformly: feed.sampler=none")
        if self.relabel is not None:
            raise UserError("feed.relabel is for replay buffers, not for datasets: feed.relabel=none")
        return samplers.make_window_sampler(steps, self.batch_size, self.sequence_length)


@dataclasses.dataclass(frozen=True)
class ReplayStore(Store):
    """A replay buffer, no larger than a run of ``total_steps`` transitions can fill.

    It stores transitions whole or, if the feed has a ``frame_stack``, every frame once.
    """

    feed: Replay
    total_steps: int

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

    def add(self, state: ReplayBuffer, steps: Transition, num_written: Int[Array, ""]) -> ReplayBuffer:
        """The store with ``steps[time, env]`` added after ``num_written`` ticks."""
        return state.add(steps, num_written)

    def sample(
        self,
        state: ReplayBuffer,
        rollout: Transition,
        memory: Any,
        num_written: Int[Array, ""],
        update_index: Array,
        key: Key[Array, ""],
        data: PyTree,
    ) -> Batch:
        """The batch for the next update: windows sampled uniformly; replayed windows start without memory."""
        steps, mask = state.sample(num_written, key, self.feed.batch_size, self.feed.sequence_length)
        return Batch(steps, mask, (), update_index)

    def stored_steps(self, state: ReplayBuffer, num_written: Int[Array, ""]) -> BufferSteps:
        """All steps that are stored."""
        return BufferSteps(state, num_written)

    def check(self, state: ReplayBuffer) -> None:
        """Check the stored experience of any number of seeds.

        Raises:
            UserError: if observations are not the stacks of frames that the feed promises.
        """
        state.check_stacks()

    def check_growth(self, steps: int) -> None:
        """Raises ``UserError`` for a buffer of frames that is smaller than a run of ``steps`` would have."""
        if self.feed.frame_stack and self.total_steps < min(self.feed.buffer_size, steps):
            raise UserError(
                f"a replay buffer of frames (feed.frame_stack={self.feed.frame_stack}) for {self.total_steps:,} steps "
                f"cannot grow: start a new run, with --steps {steps}"
            )


@dataclasses.dataclass(frozen=True)
class LoggedTransitions(WindowFeed):
    """Windows sampled uniformly from a fixed dataset of transitions.

    As a method's only feed it takes the run's dataset; beside collected experience (in :class:`Mix`, or as a feedback's
    own feed) it names its own.
    """

    reads_datasets: ClassVar[bool] = True

    batch_size: int = 256
    """Windows per update."""
    sequence_length: int = 1
    """Steps per window."""
    data: str | None = None
    """The dataset beside collected experience, named as for ``--data``; None: the run's own."""
    num_updates: int = 1
    """Batches per update of the method, where a feedback learns from them."""

    @property
    def batch_shape(self) -> tuple[int, int]:
        """Time steps and rows of a batch."""
        return self.sequence_length, self.batch_size

    def make_sampler(self, steps: Transition, group_size: int = 0) -> DatasetSampler:
        """The sampler of the dataset ``steps[time]``."""
        return samplers.make_window_sampler(steps, self.batch_size, self.sequence_length)

    def make_store(self, total_steps: int) -> Store:
        """A store that samples from the dataset of :attr:`data` and keeps nothing.

        Raises:
            UserError: if no dataset is named.
        """
        return _dataset_store(self, self.data)

    def load_data(self, read: Callable[[str], tuple[Transition, int]]) -> PyTree:
        """The sampler of the dataset of :attr:`data`."""
        return () if self.data is None else self.make_sampler(*read(self.data))


@dataclasses.dataclass(frozen=True)
class DatasetStore(Store):
    """A store that samples from a dataset at rest, and keeps nothing of what is collected."""

    feed: Feed

    def sample(
        self,
        state: PyTree,
        rollout: Transition,
        memory: Any,
        num_written: Int[Array, ""],
        update_index: Array,
        key: Key[Array, ""],
        data: DatasetSampler,
    ) -> Batch:
        """Windows or episodes of the dataset."""
        return Batch(*data.sample(key), (), update_index)


def _dataset_store(feed: Feed, data: str | None) -> DatasetStore:
    """The store that samples from the dataset ``data``. Raises :class:`UserError` if none is named."""
    if data is None:
        raise UserError(
            "demonstrations need a dataset (make one with `thespis collect RUN`): --set feedback.data=DIR for a "
            "feedback that learns from them; --data DIR for a method that learns from nothing else"
        )
    return DatasetStore(feed)


@dataclasses.dataclass(frozen=True)
class LoggedEpisodes(Feed):
    """Whole episodes sampled uniformly from a fixed dataset, masked after their ends.

    As a method's only feed it takes the run's dataset; as a feedback's own feed, beside collected experience, it names
    its own.
    """

    reads_datasets: ClassVar[bool] = True
    whole_episodes: ClassVar[bool] = True

    max_steps: int = 0
    """Largest number of steps of an episode; 0: that of the dataset's longest."""
    batch_size: int = 32
    """Episodes per update."""
    max_tokens: int = 0
    """Chats of a file with more tokens are cut or left out (``docs/language-data.md``); 0: no limit."""
    data: str | None = None
    """The dataset beside collected experience, named as for ``--data``; None: the run's own."""
    num_updates: int = 1
    """Batches per update of the method, where a feedback learns from them."""

    @property
    def batch_shape(self) -> tuple[int, int]:
        """Time steps and rows of a batch."""
        return self.max_steps, self.batch_size

    def make_sampler(self, steps: Transition, group_size: int = 0) -> DatasetSampler | BranchedSampler:
        """The sampler of the dataset ``steps[time]``."""
        return length_buckets.make_bucketed_episodes(steps, self.max_steps, self.batch_size, group_size)

    def make_store(self, total_steps: int) -> Store:
        """A store that samples from the dataset of :attr:`data` and keeps nothing.

        Raises:
            UserError: if no dataset is named.
        """
        return _dataset_store(self, self.data)

    def load_data(self, read: Callable[[str], tuple[Transition, int]]) -> PyTree:
        """The sampler of the dataset of :attr:`data`, without buckets of lengths: all batches have one shape."""
        if self.data is None:
            return ()
        return samplers.EpisodeSampler(samplers.make_episode_table(read(self.data)[0], self.max_steps), self.batch_size)


@dataclasses.dataclass(frozen=True)
class PreferencePairs(Feed):
    """Preference pairs: two episodes with the same initial state, or stored as a pair, and different returns.

    Rows ``2 k`` and ``2 k + 1`` are the better and the worse episode. Sampling is uniform over all episodes that have a
    partner, then over that episode's partners.
    """

    reads_datasets: ClassVar[bool] = True
    whole_episodes: ClassVar[bool] = True
    has_pairs: ClassVar[bool] = True

    max_steps: int = 0
    """Largest number of steps of an episode; 0: that of the dataset's longest."""
    batch_size: int = 32
    """Pairs per update."""
    max_tokens: int = 0
    """Chats of a file with more tokens are cut or left out (``docs/language-data.md``); 0: no limit."""

    @property
    def batch_shape(self) -> tuple[int, int]:
        """Time steps and rows of a batch."""
        return self.max_steps, 2 * self.batch_size

    def make_sampler(self, steps: Transition, group_size: int = 0) -> DatasetSampler | BranchedSampler:
        """The sampler of the dataset ``steps[time]``."""
        return length_buckets.make_bucketed_pairs(steps, self.max_steps, self.batch_size, group_size)
