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
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.feeds import Store, WindowFeed
from thespis.core.records import Batch, Citation, Transition


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
        random_slot = jax.random.randint(key, mask.shape, 0, jnp.maximum(number, 1))
        slot = jnp.where(number <= self.capacity, number - 1, random_slot)
        slot = jnp.where(mask, slot, self.capacity)  # out of range, so that nothing is written
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


def keep_last_writes(slot: Int[Array, " row"], out_of_range: int) -> Int[Array, " row"]:
    """The slots, but ``out_of_range`` for those that a later row or none writes."""
    order = jnp.argsort(slot, stable=True)
    ordered = slot[order]
    is_last = jnp.concatenate([ordered[1:] != ordered[:-1], jnp.ones(1, bool)])
    return jnp.where(jnp.zeros(slot.shape, bool).at[order].set(is_last), slot, out_of_range)


@dataclasses.dataclass(frozen=True)
class Reservoir(WindowFeed):
    """Reservoir of single transitions, sampled uniformly: all of a run's so far are in it with the same probability.

    Settings are those of :class:`~thespis.data.feeds.Replay`, whose buffer has the latest transitions instead.
    """

    collects: ClassVar[bool] = True
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Random Sampling with a Reservoir", "Vitter", 1985, "doi:10.1145/3147.3165"),
    )

    buffer_size: int = 100_000
    """Transitions stored per seed; never more than the run has steps."""
    batch_size: int = 256
    """Transitions per update."""
    learning_starts: int = 1_000
    """Transitions collected per seed before the first update."""
    update_interval: int = 1
    """Steps of all environments between two learning phases."""
    num_updates: int = 1
    """Updates in each learning phase."""
    policy_lag: int = 1
    """Learning phases by which the acting policy lags behind in the host loop."""
    num_envs: int = 1
    """Environments per seed, unless the run sets another number."""

    @property
    def batch_shape(self) -> tuple[int, int]:
        """Time steps and rows of a batch."""
        return 1, self.batch_size

    @property
    def collect_steps(self) -> int:
        """Steps of every environment between two learning phases."""
        return self.update_interval

    def with_collect_steps(self, collect_steps: int) -> Reservoir:
        """The feed for blocks of that many steps."""
        return dataclasses.replace(self, update_interval=collect_steps)

    def make_store(self, total_steps: int) -> Store:
        """The store for a run of ``total_steps`` transitions per seed."""
        return ReservoirStore(self, total_steps)


@dataclasses.dataclass(frozen=True)
class ReservoirStore(Store):
    """A reservoir of transitions, no larger than a run of ``total_steps`` transitions can fill."""

    feed: Reservoir
    total_steps: int

    def num_warmup_blocks(self, num_envs: int) -> int:
        """Number of blocks collected before the first update: enough for ``learning_starts``."""
        ticks = max(-(-self.feed.learning_starts // num_envs), 1)
        return max(-(-ticks // self.feed.collect_steps) - 1, 0)

    def init(self, example: Transition, num_envs: int) -> ReservoirBuffer:
        """An empty store for one seed. Raises ``UserError`` without a slot."""
        if self.feed.buffer_size < 1:
            raise UserError(f"feed.buffer_size={self.feed.buffer_size}: a reservoir needs at least one slot")
        return init_reservoir(example, min(self.feed.buffer_size, self.total_steps))

    def add_with_key(
        self, state: ReservoirBuffer, steps: Transition, num_written: Int[Array, ""], key: Key[Array, ""]
    ) -> ReservoirBuffer:
        """The store with ``steps[time, env]`` added after ``num_written`` ticks, those of a tick one by one."""
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), steps)
        return state.add(flat, jnp.ones(flat.reward.shape, bool), key)

    def sample(
        self,
        state: ReservoirBuffer,
        rollout: Transition,
        memory: Any,
        num_written: Int[Array, ""],
        update_index: Int[Array, ""],
        key: Key[Array, ""],
        data: PyTree,
    ) -> Batch:
        """The batch for the next update: stored transitions, uniformly."""
        steps = jax.tree.map(lambda x: x[None], state.sample(key, self.feed.batch_size))
        return Batch(steps, jnp.ones((1, self.feed.batch_size), bool), (), update_index)

    def env_axes(self, state: ReservoirBuffer) -> PyTree:
        """No leaf indexes environments."""
        return jax.tree.map(lambda _: -1, state)

    def check_growth(self, steps: int) -> None:
        """Raises ``UserError`` for a reservoir that is smaller than a run of ``steps`` would have."""
        if self.total_steps < min(self.feed.buffer_size, steps):
            raise UserError(
                f"a reservoir for {self.total_steps:,} steps cannot grow: start a new run, with --steps {steps}"
            )
