"""Segments of a delivery grid in pairs, their scores by partial return and by regret, and labels of a noisy teacher."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.records import Batch, Number
from thespis.feedback.preference_queries import bradley_terry_answers
from thespis.papers.regret_preference_model.planning import StateActionTable


class SegmentPairs(eqx.Module):
    """Pairs of segments as indices of tables, with the labels: 1 where the first is preferred, else 0."""

    states: Int[Array, "pair 2 state_time"]
    """The states before each step and after the last one; after an episode's end they mean nothing."""
    actions: Int[Array, "pair 2 time"]
    mask: Bool[Array, "pair 2 time"]
    """False after an episode's end."""
    ends: Bool[Array, "pair 2"]
    """Whether the episode ended in the segment."""
    label: Float[Array, " pair"]

    def sum_of(self, table: StateActionTable) -> Float[Array, "pair 2"]:
        """Sum over each segment's steps of what a table says of them."""
        return jnp.sum(jnp.where(self.mask, table[self.states[..., :-1], self.actions], 0.0), axis=-1)

    def value_gains(self, values: Float[Array, " state"]) -> Float[Array, "pair 2"]:
        """How much more the state that each segment leads to is worth than its first; 0 after an episode's end."""
        return jnp.where(self.ends, 0.0, values[self.states[..., -1]]) - values[self.states[..., 0]]

    def scores(
        self, rewards: StateActionTable, values: Float[Array, " state"], value_weight: Number
    ) -> Float[Array, "pair 2"]:
        r"""Partial returns plus weighted gains in optimal value.

        With a weight of 1 minus the regrets :math:`\sum_t r_t + V(s_T) - V(s_0)` (Knox et al. 2022, equation 3), with 0
        the partial returns. ``values``: the optimal ones for these rewards.
        """
        return self.sum_of(rewards) + value_weight * self.value_gains(values)

    def with_labels(self, scores: Float[Array, "pair 2"], beta: Number, key: Key[Array, ""]) -> SegmentPairs:
        """The same pairs with labels of a teacher who prefers larger scores, with rationality ``beta``."""
        label = bradley_terry_answers(scores[:, 0] - scores[:, 1], beta, key).label
        return SegmentPairs(self.states, self.actions, self.mask, self.ends, label)


def pair_rows(batch: Batch) -> SegmentPairs:
    """Adjacent rows of a batch with one-hot observations as pairs, without labels.

    Where an episode is truncated, the steps after it are masked too, and the segment goes on from its last state.
    """
    steps, num_pairs = batch.steps, batch.mask.shape[1] // 2
    ended_before = jnp.cumsum(steps.done, axis=0) - steps.done > 0

    def pairs(x: Array) -> Array:
        return jnp.swapaxes(x, 0, 1).reshape(num_pairs, 2, x.shape[0])

    first, after = (jnp.argmax(view.observation, axis=-1) for view in (steps.view, steps.next_view))
    last = jnp.sum(~ended_before, axis=0) - 1
    final = jnp.take_along_axis(after, last[None], axis=0)
    states = pairs(jnp.concatenate([first, final]).astype("int32"))
    ends = jnp.any(steps.terminated & ~ended_before, axis=0).reshape(num_pairs, 2)
    return SegmentPairs(states, pairs(steps.action), pairs(~ended_before), ends, jnp.zeros(num_pairs))


def empty_pairs(num_pairs: int, num_steps: int) -> SegmentPairs:
    """Pairs without any step."""
    mask = jnp.zeros((num_pairs, 2, num_steps), bool)
    states = jnp.zeros((num_pairs, 2, num_steps + 1), "int32")
    return SegmentPairs(states, jnp.zeros(mask.shape, "int32"), mask, mask[..., 0], jnp.zeros(num_pairs))
