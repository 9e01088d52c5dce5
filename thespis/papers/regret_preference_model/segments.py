"""Segments of a delivery grid in pairs with labels, and the teacher's knowledge of optimal values.

A segment has ``time`` steps from any cell on, with actions at random. The labellers of :mod:`thespis.feedback` see it
with one more step, whose reward is 0, so that they know the state that it leads to.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.records import Batch, Number
from thespis.feedback.labellers import StateValue
from thespis.feedback.preference_queries import Labeller, Queries, Segments
from thespis.papers.regret_preference_model.envs import DeliveryGrid, GridTables
from thespis.papers.regret_preference_model.planning import optimal_values


class OptimalGridValue(StateValue):
    """Optimal value of a cell, by planning with the true rewards."""

    grid: DeliveryGrid = DeliveryGrid()
    """The grid that is labelled."""
    discount: Number = 0.99
    """Discount of the values."""

    def __call__(self, observation: PyTree) -> Float[Array, ""]:
        """The value of the cell that is observed; 0 where an episode ends."""
        grid, tables = self.grid, self.grid.tables
        return observation @ optimal_values(
            grid.rewards, tables.next_state, tables.is_terminal, self.discount, grid.time_limit
        )


class SegmentPairs(eqx.Module):
    """Pairs of segments as indices of tables, with the labels: the probability that the first is the better one."""

    states: Int[Array, "pair 2 state_time"]
    """The states before each step and after the last one; after an episode's end they mean nothing."""
    actions: Int[Array, "pair 2 time"]
    mask: Bool[Array, "pair 2 time"]
    """False after an episode's end."""
    ends: Bool[Array, "pair 2"]
    """Whether the episode ended in the segment."""
    label: Float[Array, " pair"]

    def sum_of(self, table: Float[Array, "state action"]) -> Float[Array, "pair 2"]:
        """Sum over each segment's steps of what a table says of them."""
        return jnp.sum(jnp.where(self.mask, table[self.states[..., :-1], self.actions], 0.0), axis=-1)

    def value_gains(self, values: Float[Array, " state"]) -> Float[Array, "pair 2"]:
        """How much more the state that each segment leads to is worth than its first; 0 after an episode's end."""
        return jnp.where(self.ends, 0.0, values[self.states[..., -1]]) - values[self.states[..., 0]]


def label_segments(batch: Batch, tables: GridTables, labeller: Labeller, key: Key[Array, ""]) -> SegmentPairs:
    """The rows of a batch in pairs of adjacent ones, labelled by the environment's rewards."""
    steps = batch.steps
    done = jnp.cumsum(steps.done, axis=0) > 0
    mask = jnp.concatenate([jnp.ones_like(done[:1]), ~done])

    def pairs(x: Array) -> Array:
        return jnp.swapaxes(x, 0, 1).reshape(x.shape[1] // 2, 2, x.shape[0], *x.shape[2:])

    last = steps.next_view.observation[-1:]
    observation = pairs(jnp.concatenate([steps.view.observation, last]))
    action = pairs(steps.action)
    padded_action, reward = (jnp.pad(x, ((0, 0), (0, 0), (0, 1))) for x in (action, pairs(steps.reward)))
    segments = Segments(observation, padded_action, pairs(mask))
    answers = labeller.answer(Queries(segments, jnp.where(segments.mask, reward, 0.0)), key)
    states = jnp.argmax(observation, axis=-1).astype("int32")
    return SegmentPairs(states, action, pairs(mask[:-1]), pairs(done)[..., -1], answers.label)


def empty_pairs(num_pairs: int, num_steps: int) -> SegmentPairs:
    """Pairs without any step."""
    shape = (num_pairs, 2, num_steps)
    states = jnp.zeros((num_pairs, 2, num_steps + 1), "int32")
    mask = jnp.zeros(shape, bool)
    return SegmentPairs(states, jnp.zeros(shape, "int32"), mask, mask[..., 0], jnp.zeros(num_pairs))


def random_actions(num_rows: int, num_actions: int, key: Key[Array, ""]) -> Int[Array, " row"]:
    """Actions with equal probability."""
    return jax.random.randint(key, (num_rows,), 0, num_actions, "int32")
