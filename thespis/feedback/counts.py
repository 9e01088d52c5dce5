r"""A bonus for what was seldom met, by counting: observations are cut into a grid and each cell counts its visits.

.. math:: r_t \leftarrow r_t + \frac{w}{\sqrt{1 + n(\phi(s'_t))}}

with :math:`n` the visits to the cell :math:`\phi(s')` before this batch, over the whole run and all environments.

Source: Strehl and Littman, 2008 (the square root); Tang et al., 2017 (cells of continuous observations in a table by
hash). Differs from the latter: cells are those of a grid, not of random projections; two that meet in the table share
their count, of which there is a chance of one in the table's size.
"""

from __future__ import annotations

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree, UInt32

from thespis.core.errors import UserError
from thespis.core.records import Batch, Citation, EnvSpec, Report, Transition
from thespis.core.spaces import leaves, shape_of
from thespis.learners.gradient import Number


class CountsState(eqx.Module):
    """Visits of every entry of the table, and the hash by which a cell finds its entry."""

    visits: Int[Array, " entries"]
    factors: UInt32[Array, " numbers"]


class Counts(eqx.Module):
    """The environment's reward plus a bonus for the true next observation, over the square root of its count."""

    weight: Number = 0.1
    """How many units of reward the first visit to a cell is worth."""
    width: Number = 0.2
    """Length of a cell along each number of the observation, in the number's own units."""
    numbers: tuple[int, ...] = eqx.field(static=True, default=())
    """Which numbers of the observation, laid flat, tell cells apart; none: all of them."""
    bits: int = eqx.field(static=True, default=16)
    """The table has 2 to the power of so many entries."""

    name: ClassVar[str] = "counts"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("#Exploration: A Study of Count-Based Exploration", "Tang et al.", 2017, "arXiv:1611.04717"),
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> CountsState:
        """No visits. Raises ``UserError`` where the observation has no such numbers."""
        size = sum(math.prod(shape_of(part)) for part in leaves(spec.observation))
        if not all(0 <= number < size for number in self.numbers):
            raise UserError(f"numbers={self.numbers}: an observation of {spec.name} has numbers 0 to {size - 1}")
        factors = jax.random.bits(key, (len(self.numbers) or size,), "uint32") | 1
        return CountsState(jnp.zeros(2**self.bits, "int32"), factors)

    def score(self, state: CountsState, steps: Transition) -> Float[Array, "*axes"]:
        """The environment's reward plus the weighted bonus; any leading axes."""
        visits = state.visits[self._entries(state, steps.next_view.observation, steps.reward.ndim)]
        return steps.reward + self.weight / jnp.sqrt(1.0 + visits)

    def update(self, state: CountsState, batch: Batch, key: Key[Array, ""]) -> tuple[CountsState, Report]:
        """The batch's cells counted."""
        entries = self._entries(state, batch.steps.next_view.observation, 2)
        visits = state.visits.at[entries].add(batch.mask.astype("int32"))
        return CountsState(visits, state.factors), Report({"cells": jnp.sum(visits > 0).astype("float32")})

    def _entries(self, state: CountsState, observations: PyTree, axes: int) -> Int[Array, "*axes"]:
        """Where in the table the cells of observations with so many leading axes are."""

        def cut(x: Array) -> Array:
            whole = jnp.floor(x / self.width) if jnp.issubdtype(x.dtype, jnp.floating) else x
            return whole.astype("int32").reshape(*x.shape[:axes], -1)

        cells = jnp.concatenate([cut(x) for x in jax.tree.leaves(observations)], axis=-1)
        chosen = cells[..., list(self.numbers)] if self.numbers else cells
        mixed = jnp.sum(chosen.astype("uint32") * state.factors, axis=-1, dtype="uint32")
        return (mixed >> (32 - self.bits)).astype("int32")
