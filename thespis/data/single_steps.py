"""What feeds of single transitions share that store them in no order of time: settings, warm-up, batches."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.feeds import Store, WindowFeed
from thespis.core.records import Batch, Transition


@dataclasses.dataclass(frozen=True)
class SingleSteps(WindowFeed):
    """Feed of single transitions that are collected and stored; a concrete one makes its store."""

    collects: ClassVar[bool] = True

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

    @abc.abstractmethod
    def make_store(self, total_steps: int) -> Store:
        """The store for a run of ``total_steps`` transitions per seed."""

    def with_collect_steps(self, collect_steps: int) -> SingleSteps:
        """The feed for blocks of that many steps."""
        return dataclasses.replace(self, update_interval=collect_steps)


@dataclasses.dataclass(frozen=True)
class SingleStepStore(Store):
    """Store of single transitions, for a run of ``total_steps`` transitions per seed.

    Its state has a function ``sample(key, n)`` that returns ``n`` transitions ``[row]``.
    """

    feed: Any
    total_steps: int

    @abc.abstractmethod
    def add_rows(self, state: PyTree, rows: Transition, key: Key[Array, ""]) -> PyTree:
        """The state with transitions ``[row]`` added one by one, in this order."""

    def num_warmup_blocks(self, num_envs: int) -> int:
        """Number of blocks collected before the first update: enough for ``learning_starts``."""
        ticks = max(-(-self.feed.learning_starts // num_envs), 1)
        return max(-(-ticks // self.feed.collect_steps) - 1, 0)

    def add_with_key(
        self, state: PyTree, steps: Transition, num_written: Int[Array, ""], key: Key[Array, ""]
    ) -> PyTree:
        """The store with ``steps[time, env]`` added after ``num_written`` ticks, those of a tick one by one."""
        return self.add_rows(state, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), steps), key)

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
        """The batch for the next update: what the state samples."""
        steps = jax.tree.map(lambda x: x[None], state.sample(key, self.feed.batch_size))
        return Batch(steps, jnp.ones((1, self.feed.batch_size), bool), (), update_index)

    def env_axes(self, state: PyTree) -> PyTree:
        """No leaf indexes environments."""
        return jax.tree.map(lambda _: -1, state)
