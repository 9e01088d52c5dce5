"""Trajectories of an agent that acts at some steps only: at others, another agent moves or it is absent.

Rewards between two decisions belong to the first one. Discounts count decisions, not steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree


def accumulate_between_decisions(
    alive: Bool[Array, " time"],
    reward: Float[Array, " time"],
    next_value: Float[Array, " time"],
    terminated: Bool[Array, " time"],
    done: Bool[Array, " time"],
) -> tuple[Array, Array, Array, Array]:
    """Accumulate rewards from every decision up to the agent's next one in the episode.

    Returns ``(reward, next_value, terminated, done)`` of every decision. Entries where ``alive`` is false are
    meaningless. A wait that the window cuts ends with the value of the last view.
    """

    def back(after, step):
        waits, later_reward, later_value, later_terminated, later_done = after
        alive, reward, next_value, terminated, done = step
        joins = waits & ~done
        joined = (
            reward + jnp.where(joins, later_reward, 0.0),
            jnp.where(joins, later_value, next_value),
            terminated | (joins & later_terminated),
            done | (joins & later_done),
        )
        return (~alive, *joined), joined

    false, zero = jnp.zeros((), bool), jnp.zeros(())
    return jax.lax.scan(
        back, (false, zero, zero, false, false), (alive, reward, next_value, terminated, done), reverse=True
    )[1]


def restrict_to_decisions(
    objective: Callable[..., PyTree], alive: Bool[Array, " time"] | None
) -> Callable[..., PyTree]:
    """Apply ``objective(reward, value, next_value, terminated, done, *others)`` to decisions alone, leaves ``[time]``.

    Its results stand at the steps of the decisions, and are 0 elsewhere. ``alive=None``: every step is a decision.
    """
    if alive is None:
        return objective

    def wrapped(reward, value, next_value, terminated, ended, *others: Any) -> PyTree:
        order = jnp.argsort(~alive, stable=True)  # decisions first, in order of time
        is_decision = alive[order]

        def gather(x: Array) -> Array:
            return jnp.where(is_decision, x[order], jnp.zeros((), x.dtype))

        reward, next_value, terminated, ended = accumulate_between_decisions(
            alive, reward, next_value, terminated, ended
        )
        columns = (reward, value, next_value, terminated, ended, *others)
        results = objective(*(gather(x) for x in columns))
        return jax.tree.map(lambda x: jnp.where(alive, jnp.zeros_like(x).at[order].set(x), 0.0), results)

    return wrapped
