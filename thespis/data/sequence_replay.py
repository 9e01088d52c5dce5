"""Replay of sequences for recurrent methods: long windows that go on across episodes, each with the actor's memory.

A sequence is ``burn_in`` steps, by which a network only warms up its memory, and ``sequence_length`` steps to learn
from. Its memory starts as that which the actor had at its first step (``stored_memory``), or at zero. Where an episode
begins within a sequence, ``is_first`` says that memory is reset.

Source: Kapturowski et al., 2019 (R2D2), section 3.

Differs: theirs are sequences of fixed starts that overlap by half and end with their episode; these begin at any step
of any environment, as windows of other replay do, and go on into the next episode, so that no step is seldom learned
from.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.feeds import ReplaySampler, SequenceFeed, Store
from thespis.core.records import Batch, EnvSpec, Report, Transition
from thespis.data.feeds import Replay


class StoredMemory(eqx.Module):
    """Extras of an actor whose memory is replayed: its memory before the step, reset where an episode begins."""

    memory: PyTree


@dataclasses.dataclass(frozen=True)
class SequenceReplay(SequenceFeed):
    """Replay buffer of sequences for recurrent methods, sampled from the last ``buffer_size`` transitions."""

    collects: ClassVar[bool] = True

    buffer_size: int = 1_000_000
    """Transitions stored per seed; never more than the run has steps."""
    batch_size: int = 64
    """Sequences per update."""
    learning_starts: int = 1_000
    """Transitions collected per seed before the first update."""
    update_interval: int = 4
    """Steps of all environments between two learning phases."""
    num_updates: int = 1
    """Updates in each learning phase."""
    sequence_length: int = 20
    """Steps per sequence that are learned from."""
    burn_in: int = 10
    """Steps before them that only warm up memory."""
    stored_memory: bool = True
    """Whether sequences begin with the memory that the actor had then, which is stored with every step; else with
    none."""
    policy_lag: int = 1
    """Learning phases by which the acting policy lags behind in the host loop."""
    num_envs: int = 1
    """Environments per seed, unless the run sets another number."""
    frame_stack: int = 0
    """Number of stacked frames along an observation's first axis, oldest first, if each step adds one: every frame is
    then stored once. 0: observations are stored whole."""
    sampler: ReplaySampler | None = None
    """How sequences are sampled: None (uniformly), PrioritizedSampler, or your own module:Class."""

    @property
    def batch_shape(self) -> tuple[int, int]:
        """Time steps and rows of a batch."""
        return self.burn_in + self.sequence_length, self.batch_size

    @property
    def collect_steps(self) -> int:
        """Steps of every environment between two learning phases."""
        return self.update_interval

    def make_store(self, total_steps: int) -> Store:
        """The store for a run of ``total_steps`` transitions per seed."""
        windows = Replay(
            buffer_size=self.buffer_size,
            batch_size=self.batch_size,
            learning_starts=self.learning_starts,
            update_interval=self.update_interval,
            num_updates=self.num_updates,
            sequence_length=self.burn_in + self.sequence_length,
            policy_lag=self.policy_lag,
            num_envs=self.num_envs,
            frame_stack=self.frame_stack,
            sampler=self.sampler,
        )
        return SequenceStore(self, windows.make_store(total_steps))


@dataclasses.dataclass(frozen=True)
class SequenceStore(Store):
    """A replay buffer whose windows are read as sequences: nothing is masked, and memory comes with the first step."""

    feed: SequenceReplay
    base: Store

    def for_env(self, spec: EnvSpec) -> SequenceStore:
        """The store for this environment."""
        return dataclasses.replace(self, base=self.base.for_env(spec))

    def num_warmup_blocks(self, num_envs: int) -> int:
        """Number of blocks collected before the first update: enough for ``learning_starts`` and for one sequence."""
        return self.base.num_warmup_blocks(num_envs)

    def init(self, example: Transition, num_envs: int) -> PyTree:
        """An empty store for one seed.

        Raises:
            UserError: if memory is to be stored and the method's actor gives none.
        """
        if self.feed.stored_memory and not isinstance(example.extras, StoredMemory):
            raise UserError("this method stores no memory with its steps: set feed.stored_memory to false")
        return self.base.init(example, num_envs)

    def add(self, state: PyTree, steps: Transition, num_written: Int[Array, ""]) -> PyTree:
        """The store with ``steps[time, env]`` added after ``num_written`` ticks."""
        return self.base.add(state, steps, num_written)

    def sample(
        self,
        state: PyTree,
        rollout: Transition,
        memory: Any,
        num_written: Int[Array, ""],
        update_index: Int[Array, ""],
        key: Key[Array, ""],
        data: PyTree,
    ) -> Batch:
        """The batch for the next update: sequences, with the actor's memory before their first steps."""
        windows = self.base.sample(state, rollout, memory, num_written, update_index, key, data)
        extras = windows.steps.extras
        start = ()
        if self.feed.stored_memory:
            start = jax.tree.map(lambda x: x[0], extras.memory)
        steps = dataclasses.replace(windows.steps, extras=())
        return dataclasses.replace(windows, steps=steps, mask=jnp.ones_like(windows.mask), memory=start)

    def revisable(self, state: PyTree) -> PyTree:
        """The part of the state that :meth:`revise` changes: that of the sampler."""
        return self.base.revisable(state)

    def with_revised(self, state: PyTree, part: PyTree) -> PyTree:
        """The state with another revisable part."""
        return self.base.with_revised(state, part)

    def revise(self, part: PyTree, batch: Batch, report: Report) -> PyTree:
        """The revisable part after an update on ``batch``, which reported ``report``."""
        return self.base.revise(part, batch, report)

    def env_axes(self, state: PyTree) -> PyTree:
        """The axis of each leaf of the state that indexes environments; -1: none."""
        return self.base.env_axes(state)

    def check(self, state: PyTree) -> None:
        """Check the stored experience, as without sequences."""
        self.base.check(state)

    def check_growth(self, steps: int) -> None:
        """Check that a run can go on to ``steps`` transitions, as without sequences."""
        self.base.check_growth(steps)
