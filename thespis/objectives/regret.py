"""Regret matching: from regrets to action probabilities."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def regret_matching(
    regrets: Float[Array, "*rows choice"], action_mask: Bool[Array, "*rows choice"]
) -> Float[Array, "*rows choice"]:
    r"""Regret matching: probabilities proportional to positive regrets (Hart and Mas-Colell, 2000).

    They are uniform where no regret is positive.

    .. math:: \pi(a) = \frac{\max(R(a), 0)}{\sum_b \max(R(b), 0)}

    It also normalises non-negative weights to probabilities. Illegal choices have 0.
    """
    positive = jnp.where(action_mask, jnp.maximum(regrets, 0.0), 0.0)
    total, count = (jnp.sum(x, axis=-1, keepdims=True) for x in (positive, action_mask))
    any_positive = total > 0
    return jnp.where(any_positive, positive / jnp.where(any_positive, total, 1.0), action_mask / count)
