r"""Prioritized replay: windows are sampled in proportion to their last TD errors, and weighted for the bias of that.

The probability of transition ``i`` is :math:`p_i^\alpha / \sum_k p_k^\alpha` with :math:`p_i = |\delta_i| + \epsilon`;
new transitions have the largest priority so far. Importance weights are :math:`(N P_i)^{-\beta}`, divided by their
maximum in the batch; ``beta`` grows linearly to 1.

Source: Schaul et al., 2016, algorithm 1 and section 3.3 (proportional variant, stratified sampling with a sum tree).

Differs from common code: weights are divided by the maximum of the batch, not of the buffer; sums are recomputed from
below at every change, so that rounding does not accumulate.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.feeds import ReplaySampler
from thespis.core.records import Citation


class SumTree(eqx.Module):
    """Binary tree of sums in one array: node 1 is the root, the children of node ``i`` are ``2 i`` and ``2 i + 1``."""

    nodes: Float[Array, " node"]

    @property
    def num_leaves(self) -> int:
        """Number of leaves, a power of 2; the first of them is at this index."""
        return self.nodes.shape[0] // 2

    @property
    def total(self) -> Float[Array, ""]:
        """Sum of all leaves."""
        return self.nodes[1]

    def leaves(self, indices: Int[Array, " n"]) -> Float[Array, " n"]:
        """The values of the leaves with these indices."""
        return self.nodes[self.num_leaves + indices]

    def set(self, indices: Int[Array, " n"], values: Float[Array, " n"]) -> SumTree:
        """The tree with other values of leaves; of equal indices, any one value remains."""
        positions = self.num_leaves + indices
        nodes = self.nodes.at[positions].set(values)
        for _ in range(self.num_leaves.bit_length() - 1):
            positions = positions // 2
            nodes = nodes.at[positions].set(nodes[2 * positions] + nodes[2 * positions + 1])
        return SumTree(nodes)

    def find(self, points: Float[Array, " n"]) -> Int[Array, " n"]:
        """The leaves in whose interval of the cumulative sum the points (from 0 to the total) lie.

        A leaf of value 0 is never found, whatever the rounding, unless all are 0.
        """
        positions = jnp.ones(points.shape, "int32")
        for _ in range(self.num_leaves.bit_length() - 1):
            left, right = self.nodes[2 * positions], self.nodes[2 * positions + 1]
            goes_right = ((points >= left) & (right > 0)) | (left <= 0)
            points = jnp.where(goes_right, points - left, points)
            positions = 2 * positions + goes_right
        return positions - self.num_leaves


def init_sum_tree(num_leaves: int) -> SumTree:
    """A tree of zeros with at least ``num_leaves`` leaves."""
    return SumTree(jnp.zeros(2 * (1 << max(num_leaves - 1, 1).bit_length())))


class Priorities(eqx.Module):
    """Priorities of the windows in a buffer, by the row and environment of their first step, raised to ``alpha``."""

    tree: SumTree
    largest: Float[Array, ""]


@dataclasses.dataclass(frozen=True)
class PrioritizedSampler(ReplaySampler):
    """Prioritized sampling by TD errors (Schaul et al., 2016)."""

    alpha: float = 0.6
    """Exponent of priorities: 0 samples uniformly."""
    beta: float = 0.4
    """Exponent of importance weights at the first update: 1 corrects the bias of sampling in full."""
    beta_updates: int = 100_000
    """Updates after which ``beta`` has grown to 1."""
    epsilon: float = 1e-6
    """Added to absolute TD errors, so that every transition may be sampled again."""

    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Prioritized Experience Replay", "Schaul et al.", 2016, "arXiv:1511.05952"),
    )

    def init(self, num_windows: int) -> Priorities:
        """Priorities of an empty buffer."""
        return Priorities(init_sum_tree(num_windows), jnp.ones(()))

    def add(self, state: Priorities, windows: Int[Array, " n"], is_complete: Bool[Array, " n"]) -> Priorities:
        """The largest priority so far for windows that are complete now, and 0 for those that are not yet."""
        return Priorities(state.tree.set(windows, jnp.where(is_complete, state.largest, 0.0)), state.largest)

    def forget(self, state: Priorities, windows: Int[Array, " n"], is_gone: Bool[Array, " n"]) -> Priorities:
        """Priority 0 for windows that cannot be read any more."""
        return Priorities(state.tree.set(windows, jnp.where(is_gone, 0.0, state.tree.leaves(windows))), state.largest)

    def draw(self, state: Priorities, batch_size: int, key: Key[Array, ""]) -> Int[Array, " row"]:
        """Windows in proportion to their priorities, one from each of ``batch_size`` equal shares of the total."""
        points = (jnp.arange(batch_size) + jax.random.uniform(key, (batch_size,))) / batch_size
        return state.tree.find(points * state.tree.total)

    def weights(
        self, state: Priorities, indices: Int[Array, " row"], num_windows: Array, update_index: Int[Array, ""]
    ) -> Float[Array, " row"]:
        """Importance weights of sampled windows among ``num_windows``; the largest is 1."""
        beta = self.beta + (1.0 - self.beta) * jnp.clip(update_index / self.beta_updates, 0.0, 1.0)
        probs = state.tree.leaves(indices) / state.tree.total
        log_weights = -beta * jnp.log(jnp.maximum(num_windows * probs, jnp.finfo("float32").tiny))
        return jnp.exp(log_weights - jnp.max(log_weights))

    def revise(self, state: Priorities, indices: Int[Array, " row"], priorities: Float[Array, " row"]) -> Priorities:
        """Priorities after an update that has reported new ones, such as absolute TD errors."""
        values = (priorities + self.epsilon) ** self.alpha
        return Priorities(state.tree.set(indices, values), jnp.maximum(state.largest, jnp.max(values)))
