"""Group-relative advantages of responses, and reductions of token losses to one number.

A group is several responses to one prompt; its own responses are the baseline, so no critic is needed.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from thespis.objectives.statistics import masked_mean


def group_mean_advantage(returns: Float[Array, "group member"]) -> Float[Array, "group member"]:
    r"""Advantage :math:`r_i - \bar r` (Liu et al. 2025, Dr. GRPO).

    Its gradient is :math:`(G - 1) / G` times the policy gradient, as a response is part of its own baseline.
    """
    return returns - returns.mean(axis=1, keepdims=True)


def leave_one_out_advantage(returns: Float[Array, "group member"]) -> Float[Array, "group member"]:
    r"""Leave-one-out advantage: :math:`r_i` less the mean of the *other* returns, which is unbiased.

    Source: Kool et al. 2019; Ahmadian et al. 2024 (RLOO).
    Raises ``ValueError`` for groups of one, which have no others.
    """
    group_size = returns.shape[1]
    if group_size < 2:
        raise ValueError("a group of one has no leave-one-out baseline: groups need at least 2 members")
    return group_mean_advantage(returns) * group_size / (group_size - 1)


def group_normalized_advantage(
    returns: Float[Array, "group member"], epsilon: float = 1e-4
) -> Float[Array, "group member"]:
    r"""Normalised advantage :math:`(r_i - \bar r) / (\sigma + \epsilon)` (Shao et al. 2024, GRPO).

    :math:`\sigma` has ``G - 1`` degrees of freedom.
    **Biased**: prompts with similar returns weigh as much as others. A group of equal returns gives zeros.
    Raises ``ValueError`` for groups of one.
    """
    group_size = returns.shape[1]
    if group_size < 2:
        raise ValueError("a group of one has no standard deviation: groups need at least 2 members")
    centred = group_mean_advantage(returns)
    std = jnp.sqrt(jnp.sum(centred**2, axis=1, keepdims=True) / (group_size - 1))
    return centred / (std + epsilon)


def token_mean(losses: Float[Array, "row time"], mask: Bool[Array, "row time"]) -> Float[Array, ""]:
    """Mean over all tokens of the batch (Yu et al. 2025, DAPO): long responses weigh more."""
    return masked_mean(losses, mask)


def sequence_mean(losses: Float[Array, "row time"], mask: Bool[Array, "row time"]) -> Float[Array, ""]:
    """Mean over responses of their tokens' mean (Shao et al. 2024, GRPO): tokens of short ones weigh more."""
    lengths = mask.sum(axis=1)
    per_response = jnp.where(mask, losses, 0.0).sum(axis=1) / jnp.maximum(lengths, 1)
    return masked_mean(per_response, lengths > 0)


def fixed_length_mean(
    losses: Float[Array, "row time"], mask: Bool[Array, "row time"], max_length: float
) -> Float[Array, ""]:
    """Sum over tokens, per response, divided by a constant (Liu et al. 2025, Dr. GRPO): every token weighs the same.

    ``max_length``: the longest response allowed, in tokens. Only this reduction gives the gradient of the expected
    return.
    """
    return jnp.where(mask, losses, 0.0).sum() / (losses.shape[0] * max_length)
