"""Which of the updates that a feed offers are made: the replay ratio, and how it changes."""

from __future__ import annotations

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from thespis.learners.gradient import Number

T = TypeVar("T")


class Steady(eqx.Module):
    """All of them."""

    def init(self) -> PyTree:
        """Nothing is kept."""
        return ()

    def chosen(self, state: PyTree, index: Int[Array, ""], new: T, old: T) -> T:
        """The new one."""
        return new

    def told(self, state: PyTree, active: Float[Array, ""], index: Int[Array, ""]) -> PyTree:
        """Nothing is kept."""
        return state


class Watched(eqx.Module):
    """What is known of the critic: its activity summed up since the last look began, over how many updates, its mean at
    the look before (-1 before the first update), and whether the ratio has been raised.
    """

    total: Float[Array, ""]
    count: Float[Array, ""]
    last: Float[Array, ""]
    raised: Bool[Array, ""]


class Adaptive(eqx.Module):
    """One in ``one_in`` until the critic's share of active units has come to rest, then all (Ma et al., 2024).

    Every ``every`` updates offered, the share over the last ``over`` of them is compared with that of the look before;
    where it changed by less than ``gap``, the early stage is over. With ``feed.every=2 feed.updates=4`` the replay
    ratio goes from the paper's 0.5 to 2. What is not made is computed all the same: seeds that train together differ.
    """

    one_in: int = eqx.field(static=True, default=4)
    """How many updates are offered for one that is made, at first."""
    every: int = eqx.field(static=True, default=50_000)
    """Updates offered between two looks."""
    over: int = eqx.field(static=True, default=1_000)
    """Updates offered, the last ones before a look, whose mean counts."""
    gap: Number = 0.001
    """Largest change of the share of active units that counts as rest."""

    def init(self) -> Watched:
        """Nothing is known."""
        return Watched(jnp.zeros(()), jnp.zeros(()), -jnp.ones(()), jnp.zeros((), bool))

    def made(self, state: Watched, index: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether the update ``index`` is."""
        return state.raised | (index % self.one_in == 0)

    def chosen(self, state: Watched, index: Int[Array, ""], new: T, old: T) -> T:
        """The new one if the update ``index`` is made, else the old one."""
        made = self.made(state, index)
        return jax.tree.map(lambda a, b: jnp.where(made, a, b), new, old)

    def told(self, state: Watched, active: Float[Array, ""], index: Int[Array, ""]) -> Watched:
        """After one more update, in which the share of active units was ``active``."""
        counts, begins = self.made(state, index), index % self.every == self.every - self.over
        total, count = (jnp.where(begins, 0.0, x) for x in (state.total, state.count))
        total, count = total + counts * active, count + counts
        look, mean = (index + 1) % self.every == 0, total / jnp.maximum(count, 1.0)
        last = jnp.where(state.last < 0, active, state.last)
        raised = state.raised | (look & (jnp.abs(mean - last) <= self.gap))
        return Watched(total, count, jnp.where(look, mean, last), raised)


Pace = Steady | Adaptive
