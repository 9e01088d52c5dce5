"""Hindsight experience replay (HER): relabel episodes as if a goal that was reached had been the intended one.

A row of a batch is a window of consecutive steps of one episode. With probability ``her_ratio`` its goal is replaced by
one that a step of the window has reached: observations are relabelled, the step that first reaches the goal is rewarded
and terminates the episode, and later steps are masked. A row stays unchanged where no such goal is possible: where all
of them had been reached before the window started, and everywhere in an environment without goals.

Source: Andrychowicz et al., 2017. Differs: goals are drawn from the rest of the window, theirs from the whole rest of
the episode (the same, where windows are as long as episodes); rows are relabelled in place instead of being stored a
second time, so that ``k`` goals of theirs correspond to a ratio of ``k / (k + 1)``. For goals in boxes, drawn from the
whole rest of the episode, see :mod:`thespis.data.hindsight`.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key

from thespis.core.contracts import GoalRelabeler
from thespis.core.records import Batch, Number, Transition
from thespis.runtime.keys import fold


class _NoRelabeling(eqx.Module):
    """No relabelling: goals stay as they were."""

    def __call__(self, goal_relabeler: GoalRelabeler | None, batch: Batch, key: Key[Array, ""]) -> Batch:
        """Return the batch as it was sampled."""
        return batch


NO_RELABELING = _NoRelabeling()
"""What ``hindsight=None`` does."""


class HindsightRelabeling(eqx.Module):
    """Slot: the goals with which episodes are learned again."""

    @abc.abstractmethod
    def __call__(self, goal_relabeler: GoalRelabeler | None, batch: Batch, key: Key[Array, ""]) -> Batch:
        """The batch with some rows relabelled; unchanged without a relabeler."""


class HindsightFuture(HindsightRelabeling):
    """HER's "future" strategy: the new goal is any goal reached in the window, drawn uniformly."""

    her_ratio: Number = 0.8
    """Fraction of rows with a new goal, in [0, 1]."""

    def __call__(self, goal_relabeler: GoalRelabeler | None, batch: Batch, key: Key[Array, ""]) -> Batch:
        """The batch with some rows relabelled."""
        return _relabel_rows(self.her_ratio, goal_relabeler, batch, batch.mask, key)


class HindsightFinal(HindsightRelabeling):
    """HER's "final" strategy: the new goal is the one reached at the window's last step."""

    her_ratio: Number = 0.8
    """Fraction of rows with a new goal, in [0, 1]."""

    def __call__(self, goal_relabeler: GoalRelabeler | None, batch: Batch, key: Key[Array, ""]) -> Batch:
        """The batch with some rows relabelled."""
        has_next = jnp.concatenate([batch.mask[1:], jnp.zeros_like(batch.mask[:1])])
        return _relabel_rows(self.her_ratio, goal_relabeler, batch, batch.mask & ~has_next, key)


def _relabel_rows(
    her_ratio: Number,
    goal_relabeler: GoalRelabeler | None,
    batch: Batch,
    candidates: Bool[Array, "time row"],
    key: Array,
) -> Batch:
    """Relabel rows by a goal reached at one of the ``candidates`` steps, with probability ``her_ratio``."""
    if goal_relabeler is None:
        return batch
    steps, rows = batch.steps, batch.mask.shape[1]
    reached = _vmap_steps(goal_relabeler.achieved_goal)(steps.next_view.observation)
    first_observation = jax.tree.map(lambda x: jnp.broadcast_to(x[:1], x.shape), steps.view.observation)
    _, already_reached = _vmap_steps(goal_relabeler.relabel)(first_observation, reached)
    eligible = candidates & ~already_reached
    keys = jax.random.split(fold(key, "goal"), rows)
    goal_step = jax.vmap(jax.random.categorical)(keys, jnp.where(eligible, 0.0, -jnp.inf).T)
    goal = jax.tree.map(lambda x: x[goal_step, jnp.arange(rows)], reached)
    selected = jax.random.uniform(fold(key, "share"), (rows,)) < her_ratio
    relabelled, mask = relabel_goals(goal_relabeler, steps, goal, batch.mask)
    use_new = selected & eligible.any(axis=0)

    def select(new: Array, old: Array) -> Array:
        return jnp.where(use_new.reshape(1, -1, *[1] * (new.ndim - 2)), new, old)

    new_steps, mask = jax.tree.map(select, (relabelled, mask), (steps, batch.mask))
    return Batch(new_steps, mask, batch.memory, batch.update_index)


def relabel_goals(
    goal_relabeler: GoalRelabeler, steps: Transition, goal: Any, mask: Bool[Array, "time row"]
) -> tuple[Transition, Bool[Array, "time row"]]:
    """Relabel steps as they would have been with one goal per row; also the mask of those up to its first success."""
    goals = jax.tree.map(lambda x: jnp.broadcast_to(x, (mask.shape[0], *x.shape)), goal)
    observation, _ = _vmap_steps(goal_relabeler.relabel)(steps.view.observation, goals)
    next_observation, success = _vmap_steps(goal_relabeler.relabel)(steps.next_view.observation, goals)
    relabelled = dataclasses.replace(
        steps,
        view=dataclasses.replace(steps.view, observation=observation),
        next_view=dataclasses.replace(steps.next_view, observation=next_observation),
        reward=jnp.where(success, goal_relabeler.goal_reward, 0.0).astype(steps.reward.dtype),
        terminated=success,
        truncated=steps.truncated & ~success,
    )
    return relabelled, mask & (jnp.cumsum(success & mask, axis=0) - (success & mask) == 0)


def _vmap_steps(function: Any) -> Any:
    """Map a function of one observation over ``[time, row]``."""
    return jax.vmap(jax.vmap(function))
