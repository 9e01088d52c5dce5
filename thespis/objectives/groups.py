"""What an answer is worth beside others to the same question, and how losses of tokens become one number.

A group is several answers to one question; its own answers are the baseline, so no critic is needed.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from thespis.objectives.normalise import mean


def beyond_mean(returns: Float[Array, "group member"]) -> Float[Array, "group member"]:
    r""":math:`r_i - \bar r` (Liu et al. 2025, Dr. GRPO).

    The gradient that it gives is :math:`(G - 1) / G` of the policy gradient, as an answer is part of its own baseline.
    """
    return returns - returns.mean(axis=1, keepdims=True)


def leave_one_out(returns: Float[Array, "group member"]) -> Float[Array, "group member"]:
    r""":math:`r_i` less the mean of the *others* (Kool et al. 2019; Ahmadian et al. 2024, RLOO): unbiased.

    Raises ``ValueError`` for groups of one, which have no others.
    """
    members = returns.shape[1]
    if members < 2:
        raise ValueError("a group of one has no others to be compared with: groups need at least 2 members")
    return beyond_mean(returns) * members / (members - 1)


def scaled(returns: Float[Array, "group member"], epsilon: float = 1e-4) -> Float[Array, "group member"]:
    r""":math:`(r_i - \bar r) / (\sigma + \epsilon)`, :math:`\sigma` with ``G - 1`` degrees (Shao et al. 2024, GRPO).

    **Biased**: questions on which answers differ little weigh as much as others. A group of equal returns gives zeros.
    Raises ``ValueError`` for groups of one.
    """
    members = returns.shape[1]
    if members < 2:
        raise ValueError("a group of one has no spread: groups need at least 2 members")
    away = beyond_mean(returns)
    spread = jnp.sqrt(jnp.sum(away**2, axis=1, keepdims=True) / (members - 1))
    return away / (spread + epsilon)


def over_tokens(losses: Float[Array, "row time"], mask: Bool[Array, "row time"]) -> Float[Array, ""]:
    """The mean over all tokens of the batch (Yu et al. 2025, DAPO): long answers weigh more."""
    return mean(losses, mask)


def over_answers(losses: Float[Array, "row time"], mask: Bool[Array, "row time"]) -> Float[Array, ""]:
    """The mean over answers of the mean over their tokens (Shao et al. 2024, GRPO): short answers weigh more."""
    count = mask.sum(axis=1)
    each = jnp.where(mask, losses, 0.0).sum(axis=1) / jnp.maximum(count, 1)
    return mean(each, count > 0)


def over_budget(losses: Float[Array, "row time"], mask: Bool[Array, "row time"], budget: float) -> Float[Array, ""]:
    """The sum over tokens, by answer, over a constant (Liu et al. 2025, Dr. GRPO): every token weighs the same.

    ``budget``: the length that an answer may have, in tokens. Only so the gradient is that of the expected return.
    """
    return jnp.where(mask, losses, 0.0).sum() / (losses.shape[0] * budget)
