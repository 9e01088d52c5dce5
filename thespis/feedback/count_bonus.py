r"""Count-based exploration bonus: observations are discretised into grid cells, and each cell counts its visits.

.. math:: r_t \leftarrow r_t + \frac{w}{\sqrt{1 + n(\phi(s'_t))}}

with :math:`n` the visits to the cell :math:`\phi(s')` before this batch, over the whole run and all environments.

Source: Strehl and Littman, 2008 (the square root); Tang et al., 2017 (hashed cells of continuous observations in a
table). Differs from the latter: cells are those of a grid, not of random projections. Two cells that collide in the
table share their count; for two given cells the probability is one in the table's size.
"""

from __future__ import annotations

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree, UInt32

from thespis.core.errors import UserError
from thespis.core.records import Batch, Citation, EnvSpec, Number, Report, Rewards
from thespis.core.spaces import leaf_spaces, space_shape


class CountBonusState(eqx.Module):
    """State of the count bonus: visit counts of all table entries, and factors of the hash from cells to entries."""

    visit_counts: Int[Array, " entries"]
    hash_factors: UInt32[Array, " numbers"]


class CountBonus(eqx.Module):
    """Count-based exploration bonus: ``bonus_coef / sqrt(1 + visits)`` for the cell of the true next observation.

    It is added to the environment's reward.
    """

    bonus_coef: Number = 0.1
    """Bonus of the first visit to a cell, in units of reward."""
    cell_size: Number = 0.2
    """Side of a cell along each number of the observation, in the number's own units."""
    obs_indices: tuple[int, ...] = eqx.field(static=True, default=())
    """Indices into the flattened observation of the numbers that make up a cell; empty: all of them."""
    hash_bits: int = eqx.field(static=True, default=16)
    """The table has ``2 ** hash_bits`` entries."""

    name: ClassVar[str] = "counts"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("#Exploration: A Study of Count-Based Exploration", "Tang et al.", 2017, "arXiv:1611.04717"),
    )

    @property
    def feed(self) -> None:
        """No data of its own: it learns from the method's batch."""
        return None

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> CountBonusState:
        """No visits. Raises ``UserError`` if ``obs_indices`` are outside the observation."""
        size = sum(math.prod(space_shape(part)) for part in leaf_spaces(spec.observation_space))
        if not all(0 <= index < size for index in self.obs_indices):
            raise UserError(
                f"obs_indices={self.obs_indices}: an observation of {spec.name} has the indices 0 to {size - 1}"
            )
        factors = jax.random.bits(key, (len(self.obs_indices) or size,), "uint32") | 1
        return CountBonusState(jnp.zeros(2**self.hash_bits, "int32"), factors)

    def score(self, state: CountBonusState, batch: Batch, key: Key[Array, ""]) -> Rewards:
        """The environment's reward plus the weighted bonus."""
        steps = batch.steps
        visits = state.visit_counts[self._table_indices(state, steps.next_view.observation, steps.reward.ndim)]
        return Rewards(steps.reward + self.bonus_coef / jnp.sqrt(1.0 + visits))

    def update(
        self, state: CountBonusState, batch: Batch, own_batch: Batch | None, key: Key[Array, ""]
    ) -> tuple[CountBonusState, Report]:
        """Count the cells of the batch's next observations."""
        entries = self._table_indices(state, batch.steps.next_view.observation, 2)
        visits = state.visit_counts.at[entries].add(batch.mask.astype("int32"))
        return CountBonusState(visits, state.hash_factors), Report({"cells": jnp.sum(visits > 0).astype("float32")})

    def _table_indices(self, state: CountBonusState, observations: PyTree, num_axes: int) -> Int[Array, "*axes"]:
        """Table indices of the cells of observations with ``num_axes`` leading axes."""

        def to_cells(x: Array) -> Array:
            rounded = jnp.floor(x / self.cell_size) if jnp.issubdtype(x.dtype, jnp.floating) else x
            return rounded.astype("int32").reshape(*x.shape[:num_axes], -1)

        cells = jnp.concatenate([to_cells(x) for x in jax.tree.leaves(observations)], axis=-1)
        selected = cells[..., list(self.obs_indices)] if self.obs_indices else cells
        hashes = jnp.sum(selected.astype("uint32") * state.hash_factors, axis=-1, dtype="uint32")
        return (hashes >> (32 - self.hash_bits)).astype("int32")
