"""Replay ratio: which of the updates that a feed offers are applied, and how their share changes."""

from __future__ import annotations

import abc
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from thespis.core.records import Number

T = TypeVar("T")


class ReplayRatio(eqx.Module):
    """Slot: which of the updates that a feed offers are applied."""

    @abc.abstractmethod
    def init(self) -> PyTree:
        """The initial state, a tree of arrays; ``()`` if nothing changes."""

    @abc.abstractmethod
    def select(self, state: PyTree, update_index: Int[Array, ""], new: T, old: T) -> T:
        """The learner's state after the update: ``new`` if the update is applied, else ``old``."""

    @abc.abstractmethod
    def update(self, state: PyTree, active_share: Float[Array, ""], update_index: Int[Array, ""]) -> PyTree:
        """The state after one more update, in which this share of the critic's units was active."""

    @abc.abstractmethod
    def num_applied(self, state: PyTree, num_offered: Int[Array, ""]) -> Int[Array, ""]:
        """How many of the updates offered so far were applied."""


class Fixed(ReplayRatio):
    """Fixed replay ratio: every update is applied."""

    def init(self) -> PyTree:
        """An empty state: nothing has to be kept."""
        return ()

    def select(self, state: PyTree, update_index: Int[Array, ""], new: T, old: T) -> T:
        """``new``: every update is applied."""
        return new

    def update(self, state: PyTree, active_share: Float[Array, ""], update_index: Int[Array, ""]) -> PyTree:
        """Return the state unchanged: nothing is learned."""
        return state

    def num_applied(self, state: PyTree, num_offered: Int[Array, ""]) -> Int[Array, ""]:
        """All updates that were offered."""
        return num_offered


class ReplayRatioState(eqx.Module):
    """State of the adaptive replay ratio.

    Sum of the critic's active share over the current check window and the number of updates in it, the mean at the last
    check (-1 before the first update), whether the ratio has been raised, and the number of updates applied so far.
    """

    activity_sum: Float[Array, ""]
    count: Float[Array, ""]
    last_mean: Float[Array, ""]
    ratio_raised: Bool[Array, ""]
    num_applied: Int[Array, ""]


class Adaptive(ReplayRatio):
    """Adaptive replay ratio: raised once the critic's share of active units has settled (Ma et al., 2024).

    At first one in ``update_interval`` updates is applied, later all. Every ``check_interval`` updates offered, the
    mean share over the last ``check_window`` of them is compared with that of the last check; where it changed by at
    most ``tolerance``, the early stage is over. With ``feed.update_interval=2 feed.num_updates=4`` the replay ratio
    goes from the paper's 0.5 to 2. Updates that are not applied are computed all the same, as seeds that train together
    differ.
    """

    update_interval: int = eqx.field(static=True, default=4)
    """At first, one in this many updates offered is applied."""
    check_interval: int = eqx.field(static=True, default=50_000)
    """Updates offered between two checks."""
    check_window: int = eqx.field(static=True, default=1_000)
    """Number of last updates offered before a check over which the mean is taken."""
    tolerance: Number = 0.001
    """Largest change of the active share that counts as settled."""

    def init(self) -> ReplayRatioState:
        """Initial state: no update yet, ratio not raised."""
        return ReplayRatioState(
            jnp.zeros(()), jnp.zeros(()), -jnp.ones(()), jnp.zeros((), bool), jnp.zeros((), "int32")
        )

    def should_update(self, state: ReplayRatioState, update_index: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether the update ``update_index`` is applied."""
        return state.ratio_raised | (update_index % self.update_interval == 0)

    def select(self, state: ReplayRatioState, update_index: Int[Array, ""], new: T, old: T) -> T:
        """The new state if the update ``update_index`` is applied, else the old one."""
        applied = self.should_update(state, update_index)
        return jax.tree.map(lambda a, b: jnp.where(applied, a, b), new, old)

    def update(
        self, state: ReplayRatioState, active_share: Float[Array, ""], update_index: Int[Array, ""]
    ) -> ReplayRatioState:
        """State after one more update, in which the share of active units was ``active_share``."""
        applied, window_starts = (
            self.should_update(state, update_index),
            update_index % self.check_interval == self.check_interval - self.check_window,
        )
        total, count = (jnp.where(window_starts, 0.0, x) for x in (state.activity_sum, state.count))
        total, count = total + applied * active_share, count + applied
        is_check, mean = (update_index + 1) % self.check_interval == 0, total / jnp.maximum(count, 1.0)
        last = jnp.where(state.last_mean < 0, active_share, state.last_mean)
        raised = state.ratio_raised | (is_check & (jnp.abs(mean - last) <= self.tolerance))
        return ReplayRatioState(total, count, jnp.where(is_check, mean, last), raised, state.num_applied + applied)

    def num_applied(self, state: ReplayRatioState, num_offered: Int[Array, ""]) -> Int[Array, ""]:
        """The number that the state has counted."""
        return state.num_applied
