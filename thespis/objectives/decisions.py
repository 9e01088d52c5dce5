"""Trajectories of an agent that decides at some steps only: others move, or it is not there.

What comes to it between two decisions belongs to the first one. Discounts count decisions, not steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree


def stitched(
    alive: Bool[Array, " time"],
    reward: Float[Array, " time"],
    next_value: Float[Array, " time"],
    terminated: Bool[Array, " time"],
    ended: Bool[Array, " time"],
) -> tuple[Array, Array, Array, Array]:
    """``(reward, next_value, terminated, ended)`` of every decision, up to the agent's next one in the episode.

    Where ``alive`` is false they mean nothing. A wait that the window cuts ends with the value of the last view.
    """

    def back(after, step):
        waits, later_reward, later_value, later_terminated, later_ended = after
        alive, reward, next_value, terminated, ended = step
        joins = waits & ~ended
        found = (
            reward + jnp.where(joins, later_reward, 0.0),
            jnp.where(joins, later_value, next_value),
            terminated | (joins & later_terminated),
            ended | (joins & later_ended),
        )
        return (~alive, *found), found

    no, zero = jnp.zeros((), bool), jnp.zeros(())
    return jax.lax.scan(back, (no, zero, zero, no, no), (alive, reward, next_value, terminated, ended), reverse=True)[1]


def at_decisions(objective: Callable[..., PyTree], alive: Bool[Array, " time"] | None) -> Callable[..., PyTree]:
    """``objective(reward, value, next_value, terminated, ended, *others)`` over decisions alone, leaves ``[time]``.

    Its answers stand where the decisions were taken, and are 0 elsewhere. With ``None`` every step is a decision.
    """
    if alive is None:
        return objective

    def over(reward, value, next_value, terminated, ended, *others: Any) -> PyTree:
        order = jnp.argsort(~alive, stable=True)  # decisions first, as they were taken
        there = alive[order]

        def gathered(x: Array) -> Array:
            return jnp.where(there, x[order], jnp.zeros((), x.dtype))

        reward, next_value, terminated, ended = stitched(alive, reward, next_value, terminated, ended)
        columns = (reward, value, next_value, terminated, ended, *others)
        found = objective(*(gathered(x) for x in columns))
        return jax.tree.map(lambda x: jnp.where(alive, jnp.zeros_like(x).at[order].set(x), 0.0), found)

    return over
