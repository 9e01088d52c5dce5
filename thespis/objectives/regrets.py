"""From regrets to choices."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def regret_matching(
    regrets: Float[Array, "*rows choice"], legal: Bool[Array, "*rows choice"]
) -> Float[Array, "*rows choice"]:
    r"""Probabilities proportional to positive regrets (Hart and Mas-Colell, 2000); uniform where none is positive.

    .. math:: \pi(a) = \frac{\max(R(a), 0)}{\sum_b \max(R(b), 0)}

    Also turns weights that are never negative into probabilities. Illegal choices have 0.
    """
    positive = jnp.where(legal, jnp.maximum(regrets, 0.0), 0.0)
    total, count = (jnp.sum(x, axis=-1, keepdims=True) for x in (positive, legal))
    some = total > 0
    return jnp.where(some, positive / jnp.where(some, total, 1.0), legal / count)
