"""Where a feed keeps experience between acting and learning. One small class a feed, one contract for all."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.feeds import Episodes, Feed, Replay, Rollouts
from thespis.core.records import Batch, Outcomes, Transition
from thespis.data import frames, replay

Ring = replay.Ring | frames.FrameRing
"""What replay is kept in: both write, sample and check alike, and all their leaves are ``[row, env, ...]``."""


@dataclasses.dataclass(frozen=True)
class RolloutStore:
    """Keeps nothing: the batch is what has just been collected."""

    feed: Rollouts
    group: ClassVar[int] = 0

    def warmup_blocks(self, envs: int) -> int:
        """Blocks collected before learning begins."""
        return 0

    def open(self, example: Transition, envs: int) -> PyTree:
        """An empty store for one seed."""
        return ()

    def add(self, store: PyTree, steps: Transition, written: Int[Array, ""]) -> PyTree:
        """The store with ``steps[time, env]`` added after ``written`` ticks."""
        return store

    def batch(
        self,
        store: PyTree,
        fresh: Transition,
        memory: Any,
        written: Int[Array, ""],
        index: Array,
        key: Key[Array, ""],
    ) -> Batch:
        """What the next update eats; ``fresh`` are the steps just collected and ``memory`` that before them."""
        return Batch(fresh, jnp.ones(fresh.reward.shape, bool), memory, index)

    def counted(self, outcomes: Outcomes) -> Outcomes:
        """The outcomes that count: all."""
        return outcomes

    def check(self, store: PyTree) -> None:
        """Nothing is kept: nothing can be wrong with it."""


@dataclasses.dataclass(frozen=True)
class EpisodeStore:
    """Keeps nothing: the batch is the first episode of every environment in what has just been collected."""

    feed: Episodes

    @property
    def group(self) -> int:
        """Environments in a row that begin alike, everywhere anew in every block; 0: none does."""
        return self.feed.group

    def warmup_blocks(self, envs: int) -> int:
        """Blocks collected before learning begins. Raises ``UserError`` where environments make no whole groups."""
        if self.feed.turns < 1 or self.feed.group < 1 or envs % self.feed.group:
            raise UserError(
                f"{envs} environments do not make groups of {self.feed.group}, or episodes have no limit of turns "
                f"({self.feed.turns}): --envs N, or feed.turns=N"
            )
        return 0

    def open(self, example: Transition, envs: int) -> PyTree:
        """An empty store for one seed."""
        return ()

    def add(self, store: PyTree, steps: Transition, written: Int[Array, ""]) -> PyTree:
        """The store with ``steps[time, env]`` added after ``written`` ticks."""
        return store

    def batch(
        self, store: PyTree, fresh: Transition, memory: Any, written: Int[Array, ""], index: Array,
        key: Key[Array, ""],
    ) -> Batch:  # fmt: skip
        """What the next update eats: ``fresh``, masked behind the end of every environment's first episode."""
        return Batch(fresh, first_episodes(fresh.ended), (), index)

    def counted(self, outcomes: Outcomes) -> Outcomes:
        """The outcomes that count: those of first episodes."""
        return dataclasses.replace(outcomes, ended=outcomes.ended & first_episodes(outcomes.ended))

    def check(self, store: PyTree) -> None:
        """Nothing is kept: nothing can be wrong with it."""


def first_episodes(ended: Bool[Array, "time env"]) -> Bool[Array, "time env"]:
    """Which steps belong to the first episode of each environment."""
    return jnp.cumsum(ended, axis=0) - ended == 0


@dataclasses.dataclass(frozen=True)
class ReplayStore:
    """A ring of transitions, no larger than a run of ``steps`` transitions can fill.

    Whole ones, or, where the feed says that observations are stacks of frames, with every frame once.
    """

    feed: Replay
    steps: int
    group: ClassVar[int] = 0

    def warmup_blocks(self, envs: int) -> int:
        """Blocks collected before learning begins: enough for the warm-up and for one window."""
        ticks = max(-(-self.feed.warmup // envs), self.feed.length)
        blocks = -(-ticks // self.feed.ticks)
        # the block that ends the warm-up also learns
        return max(blocks - 1, 0)

    def open(self, example: Transition, envs: int) -> Ring:
        """An empty store for one seed."""
        feed = self.feed
        if feed.capacity < max(feed.length * envs, feed.batch):
            raise UserError(
                f"the replay capacity of {feed.capacity} transitions is less than one batch ({feed.batch}) or one "
                f"window ({feed.length} steps of {envs} environments): raise feed.capacity"
            )
        given = (example, min(feed.capacity, self.steps), envs, feed.every)
        return frames.empty(*given, feed.length, feed.frames) if feed.frames else replay.empty(*given)

    def add(self, store: Ring, steps: Transition, written: Int[Array, ""]) -> Ring:
        """The store with ``steps[time, env]`` added after ``written`` ticks."""
        return store.write(steps, written)

    def batch(
        self, store: Ring, fresh: Transition, memory: Any, written: Int[Array, ""], index: Array,
        key: Key[Array, ""],
    ) -> Batch:  # fmt: skip
        """What the next update eats: windows drawn uniformly; replayed windows begin without memory."""
        steps, mask = store.sample(written, key, self.feed.batch, self.feed.length)
        return Batch(steps, mask, (), index)

    def counted(self, outcomes: Outcomes) -> Outcomes:
        """The outcomes that count: all."""
        return outcomes

    def check(self, store: Ring) -> None:
        """Look at what has been stored, of any number of seeds.

        Raises:
            UserError: if it is not what the feed says.
        """
        store.check()


Store = RolloutStore | EpisodeStore | ReplayStore


def store_for(feed: Feed, steps: int) -> Store:
    """The store of a feed that eats fresh experience, for a run of ``steps`` transitions per seed."""
    match feed:
        case Rollouts():
            return RolloutStore(feed)
        case Episodes():
            return EpisodeStore(feed)
        case Replay():
            return ReplayStore(feed, steps)
    raise UserError(f"a method fed by {type(feed).__name__} learns from a dataset: use --data DIR, not an environment")
