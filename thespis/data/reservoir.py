"""Reservoir sampling: a uniform sample of all that was ever seen, in a fixed number of slots.

The first items fill the slots; from then on the :math:`n`-th replaces a random slot with probability :math:`K / n`,
where :math:`K` is the number of slots. So after any number of items, each of them is stored with the same probability:
old experience is kept, as continual learning and averages of past policies need it.

Source: Vitter, 1985 (algorithm R).

Differs: a block of items is added at once; of several that draw the same slot the last one stays, as if they had come
one after another.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.feeds import Store
from thespis.core.records import Citation, Transition
from thespis.data.single_steps import SingleSteps, SingleStepStore


class ReservoirBuffer(eqx.Module):
    """Reservoir buffer: leaves ``[capacity, ...]``, of which the first ``min(num_seen, capacity)`` are filled."""

    items: PyTree
    num_seen: Int[Array, ""]

    @property
    def capacity(self) -> int:
        """Largest number of items."""
        return jax.tree.leaves(self.items)[0].shape[0]

    def add(self, items: PyTree, mask: Bool[Array, " row"], key: Key[Array, ""]) -> ReservoirBuffer:
        """Add ``items`` ``[row, ...]`` where ``mask`` is true; the n-th is stored with probability ``capacity / n``."""
        number = self.num_seen + jnp.cumsum(mask.astype("int32"))  # of each item under the mask, from 1
        slot = jnp.where(
            mask, reservoir_slots(number, self.capacity, key), self.capacity
        )  # out of range, so that nothing is written
        slot = keep_last_writes(slot, self.capacity)
        items = jax.tree.map(lambda all_, new: all_.at[slot].set(new, mode="drop"), self.items, items)
        return ReservoirBuffer(items, self.num_seen + jnp.sum(mask, dtype="int32"))

    def sample(self, key: Key[Array, ""], n: int) -> PyTree:
        """``n`` items sampled with replacement, leaves ``[n, ...]``; before anything is added, empty ones."""
        index = jax.random.randint(key, (n,), 0, jnp.clip(self.num_seen, 1, self.capacity))
        return jax.tree.map(lambda x: x[index], self.items)


def init_reservoir(example: PyTree, capacity: int) -> ReservoirBuffer:
    """An empty reservoir for items shaped as ``example``."""
    items = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), example)
    return ReservoirBuffer(items, jnp.zeros((), "int32"))


def reservoir_slots(number: Int[Array, " row"], capacity: int, key: Key[Array, ""]) -> Int[Array, " row"]:
    """The slot of each item by its ``number``, which counts from 1; outside of the slots if it is not stored."""
    random_slot = jax.random.randint(key, number.shape, 0, jnp.maximum(number, 1))
    return jnp.where(number <= capacity, number - 1, random_slot)


def keep_last_writes(slot: Int[Array, " row"], out_of_range: int) -> Int[Array, " row"]:
    """The slots, but ``out_of_range`` for those that a later row or none writes."""
    order = jnp.argsort(slot, stable=True)
    ordered = slot[order]
    is_last = jnp.concatenate([ordered[1:] != ordered[:-1], jnp.ones(1, bool)])
    return jnp.where(jnp.zeros(slot.shape, bool).at[order].set(is_last), slot, out_of_range)


@dataclasses.dataclass(frozen=True)
class Reservoir(SingleSteps):
    """Reservoir of single transitions, sampled uniformly: all of a run's so far are in it with the same probability.

    Settings are those of :class:`~thespis.data.feeds.Replay`, whose buffer has the latest transitions instead.
    """

    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Random Sampling with a Reservoir", "Vitter", 1985, "doi:10.1145/3147.3165"),
    )

    def make_store(self, total_steps: int) -> Store:
        """The store for a run of ``total_steps`` transitions per seed."""
        return ReservoirStore(self, total_steps)


@dataclasses.dataclass(frozen=True)
class ReservoirStore(SingleStepStore):
    """A reservoir of transitions, no larger than a run of ``total_steps`` transitions can fill."""

    def init(self, example: Transition, num_envs: int) -> ReservoirBuffer:
        """An empty store for one seed. Raises ``UserError`` without a slot."""
        if self.feed.buffer_size < 1:
            raise UserError(f"feed.buffer_size={self.feed.buffer_size}: a reservoir needs at least one slot")
        return init_reservoir(example, min(self.feed.buffer_size, self.total_steps))

    def add_rows(self, state: ReservoirBuffer, rows: Transition, key: Key[Array, ""]) -> ReservoirBuffer:
        """The reservoir with transitions ``[row]`` added one by one."""
        return state.add(rows, jnp.ones(rows.reward.shape, bool), key)

    def check_growth(self, steps: int) -> None:
        """Raises ``UserError`` for a reservoir that is smaller than a run of ``steps`` would have."""
        if self.total_steps < min(self.feed.buffer_size, steps):
            raise UserError(
                f"a reservoir for {self.total_steps:,} steps cannot grow: start a new run, with --steps {steps}"
            )
