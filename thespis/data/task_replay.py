r"""Replay with a buffer for each task: every batch has equal shares of all tasks, however often each was played.

With one buffer for all, a task whose episodes are long crowds out the others, and one that is no longer played is
forgotten. Here each of :math:`M` tasks keeps its own :math:`K / M` transitions, the newest or a uniform sample of all
so far (:mod:`~thespis.data.reservoir`), and a batch of :math:`B` rows has :math:`\lfloor B / M \rfloor` or one more of
each task that was played yet. The tasks are those that the curriculum numbers (``Transition.level``).

Source: a buffer for each task is common in multi-task learning (Yu et al., 2020, "Meta-World"; Rakelly et al., 2019,
"PEARL"), a reservoir for each in continual learning (Isele and Cosgun, 2018, "Selective Experience Replay").
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from thespis.core.errors import UserError
from thespis.core.feeds import Store
from thespis.core.records import Transition
from thespis.data.reservoir import keep_last_writes, reservoir_slots
from thespis.data.single_steps import SingleSteps, SingleStepStore


class TaskBuffers(eqx.Module):
    """Buffers of all tasks: leaves ``[task * capacity, ...]``, and the number of transitions seen of each task."""

    items: Transition
    num_seen: Int[Array, " task"]

    @property
    def num_tasks(self) -> int:
        """Number of tasks, each with a buffer of its own."""
        return self.num_seen.shape[0]

    @property
    def capacity(self) -> int:
        """Largest number of transitions of a task."""
        return self.items.reward.shape[0] // self.num_tasks

    def add(self, steps: Transition, keep_uniform: bool, key: Key[Array, ""]) -> TaskBuffers:
        """Add transitions ``[row]``, each to the buffer of its task; those of other tasks are left out.

        ``keep_uniform``: a full buffer keeps a uniform sample of all its transitions so far, in place of the newest.
        """
        assert steps.level is not None  # checked when the buffers are made
        is_of_task: Bool[Array, "row task"] = steps.level[:, None] == jnp.arange(self.num_tasks)
        number = self.num_seen + jnp.cumsum(is_of_task, axis=0, dtype="int32")  # of each transition in its task, from 1
        task = jnp.argmax(is_of_task, axis=1)
        number = jnp.take_along_axis(number, task[:, None], axis=1)[:, 0]
        slot = reservoir_slots(number, self.capacity, key) if keep_uniform else (number - 1) % self.capacity
        nowhere = self.num_tasks * self.capacity
        is_kept = jnp.any(is_of_task, axis=1) & (slot < self.capacity)
        slot = keep_last_writes(jnp.where(is_kept, task * self.capacity + slot, nowhere), nowhere)
        items = jax.tree.map(lambda all_, new: all_.at[slot].set(new, mode="drop"), self.items, steps)
        return TaskBuffers(items, self.num_seen + jnp.sum(is_of_task, axis=0, dtype="int32"))

    def sample(self, key: Key[Array, ""], n: int) -> Transition:
        """``n`` transitions ``[row]``, with replacement: equal shares of the tasks that have any.

        Before anything is added, empty ones.
        """
        first_key, slot_key = jax.random.split(key)
        has_any = self.num_seen > 0
        tasks, count = jnp.argsort(~has_any, stable=True), jnp.maximum(jnp.sum(has_any), 1)
        first = jax.random.randint(first_key, (), 0, count)  # gets what is left when the rows cannot be shared equally
        task = tasks[(first + jnp.arange(n)) % count]
        slot = jax.random.randint(slot_key, (n,), 0, jnp.clip(self.num_seen[task], 1, self.capacity))
        return jax.tree.map(lambda x: x[task * self.capacity + slot], self.items)


@dataclasses.dataclass(frozen=True)
class TaskReplay(SingleSteps):
    """Replay of single transitions with a buffer for each task, and equal shares of all tasks in every batch.

    For curricula that number their tasks, such as ``--curriculum tasks``. Other settings are those of
    :class:`~thespis.data.feeds.Replay`.
    """

    buffer_size: int = 1_000_000
    """Transitions stored per seed, an equal part of them for each task; never more than the run has steps."""
    num_tasks: int = 1
    """Number of tasks. Transitions of tasks with other numbers than 0 to ``num_tasks - 1`` are not stored."""
    keep_uniform: bool = False
    """Whether a full buffer keeps a uniform sample of all transitions of its task, in place of the newest."""

    def make_store(self, total_steps: int) -> Store:
        """The store for a run of ``total_steps`` transitions per seed."""
        return TaskStore(self, total_steps)


@dataclasses.dataclass(frozen=True)
class TaskStore(SingleStepStore):
    """A buffer for each task, none larger than a run of ``total_steps`` transitions can fill."""

    def init(self, example: Transition, num_envs: int) -> TaskBuffers:
        """Empty buffers for one seed. Raises ``UserError`` where tasks have no numbers, or no room."""
        feed = self.feed
        if feed.num_tasks < 1 or feed.buffer_size < feed.num_tasks:
            raise UserError(
                f"feed.num_tasks={feed.num_tasks}, feed.buffer_size={feed.buffer_size}: TaskReplay needs a task, and a "
                "place for each"
            )
        if example.level is None:
            raise UserError(
                "TaskReplay has a buffer for each task, and the curriculum does not number its tasks: add --curriculum "
                "tasks, or use feed=Replay"
            )
        capacity = min(feed.buffer_size // feed.num_tasks, self.total_steps)
        slots = feed.num_tasks * capacity
        items = jax.tree.map(lambda x: jnp.zeros((slots, *jnp.shape(x)), jnp.asarray(x).dtype), example)
        return TaskBuffers(items, jnp.zeros(feed.num_tasks, "int32"))

    def add_rows(self, state: TaskBuffers, rows: Transition, key: Key[Array, ""]) -> TaskBuffers:
        """The buffers with transitions ``[row]`` added one by one."""
        return state.add(rows, self.feed.keep_uniform, key)

    def check_growth(self, steps: int) -> None:
        """Raises ``UserError`` for buffers that are smaller than those of a run of ``steps`` would be."""
        if self.total_steps < min(self.feed.buffer_size // self.feed.num_tasks, steps):
            raise UserError(
                f"buffers of tasks for {self.total_steps:,} steps cannot grow: start a new run, with --steps {steps}"
            )
