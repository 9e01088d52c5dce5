"""Hindsight: what was done is told again as if a place that was reached had been the goal.

A row of a batch is a window of consecutive steps of one episode. With chance ``share`` its goal becomes one that a step
of the window has reached; what was seen is retold, the step that first reaches the goal is paid and ends the episode,
and what comes behind it is masked. A row stays as it was played where the world could not have shown it with any such
goal: where all of them had been reached before the window began, and everywhere in a world that tells no goals.

Source: Andrychowicz et al., 2017. Differs: goals are drawn from what the window still holds, where theirs come from the
whole rest of the episode (the same, where windows are as long as episodes); rows become hindsight in place of being
stored a second time, a share of ``k / (k + 1)`` for ``k`` goals of theirs.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key

from thespis.core.goals import Goals
from thespis.core.keys import fold
from thespis.core.records import Batch, Transition
from thespis.learners.gradient import Number


class AsTold(eqx.Module):
    """Goals stay those that the world told."""

    def __call__(self, goals: Goals | None, batch: Batch, key: Key[Array, ""]) -> Batch:
        """The batch itself."""
        return batch


class Future(eqx.Module):
    """The new goal is any that the window reaches."""

    share: Number = 0.8
    """How many rows have a new goal, in [0, 1]."""

    def __call__(self, goals: Goals | None, batch: Batch, key: Key[Array, ""]) -> Batch:
        """The batch, some of it retold."""
        return _some(self.share, goals, batch, batch.mask, key)


class Final(eqx.Module):
    """The new goal is what the window reaches last."""

    share: Number = 0.8
    """How many rows have a new goal, in [0, 1]."""

    def __call__(self, goals: Goals | None, batch: Batch, key: Key[Array, ""]) -> Batch:
        """The batch, some of it retold."""
        followed = jnp.concatenate([batch.mask[1:], jnp.zeros_like(batch.mask[:1])])
        return _some(self.share, goals, batch, batch.mask & ~followed, key)


Hindsight = AsTold | Future | Final


def _some(share: Number, goals: Goals | None, batch: Batch, asked: Bool[Array, "time row"], key: Array) -> Batch:
    """Rows retold with a goal that a step of those that are ``asked`` has reached."""
    if goals is None:
        return batch
    steps, rows = batch.steps, batch.mask.shape[1]
    reached = _each(goals.achieved)(steps.next_view.observation)
    seen = jax.tree.map(lambda x: jnp.broadcast_to(x[:1], x.shape), steps.view.observation)
    _, before = _each(goals.retold)(seen, reached)
    fits = asked & ~before
    keys = jax.random.split(fold(key, "goal"), rows)
    at = jax.vmap(jax.random.categorical)(keys, jnp.where(fits, 0.0, -jnp.inf).T)
    goal = jax.tree.map(lambda x: x[at, jnp.arange(rows)], reached)
    drawn = jax.random.uniform(fold(key, "share"), (rows,)) < share
    retold, mask = retold_with(goals, steps, goal, batch.mask)
    chosen = drawn & fits.any(axis=0)

    def some(new: Array, old: Array) -> Array:
        return jnp.where(chosen.reshape(1, -1, *[1] * (new.ndim - 2)), new, old)

    told, mask = jax.tree.map(some, (retold, mask), (steps, batch.mask))
    return Batch(told, mask, batch.memory, batch.index)


def retold_with(
    goals: Goals, steps: Transition, goal: Any, mask: Bool[Array, "time row"]
) -> tuple[Transition, Bool[Array, "time row"]]:
    """Steps as they would have been with a goal for each row, and which of them would have been made."""
    everywhere = jax.tree.map(lambda x: jnp.broadcast_to(x, (mask.shape[0], *x.shape)), goal)
    now, _ = _each(goals.retold)(steps.view.observation, everywhere)
    after, there = _each(goals.retold)(steps.next_view.observation, everywhere)
    told = dataclasses.replace(
        steps,
        view=dataclasses.replace(steps.view, observation=now),
        next_view=dataclasses.replace(steps.next_view, observation=after),
        reward=jnp.where(there, goals.reward, 0.0).astype(steps.reward.dtype),
        terminated=there,
        truncated=steps.truncated & ~there,
    )
    return told, mask & (jnp.cumsum(there & mask, axis=0) - (there & mask) == 0)


def _each(function: Any) -> Any:
    """A function of one observation, for ``[time, row]`` of them."""
    return jax.vmap(jax.vmap(function))
