"""Distributions of returns as chances of fixed atoms, equally far apart (Bellemare et al. 2017)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def projected(
    values: Float[Array, " from"], chances: Float[Array, " from"], atoms: Float[Array, " to"]
) -> Float[Array, " to"]:
    r"""The distribution of ``values`` with their ``chances``, brought onto ``atoms`` (equation 7).

    .. math:: m_i = \sum_j p_j \left[ 1 - \frac{|[x_j]_{z_1}^{z_n} - z_i|}{\Delta z} \right]_0^1

    Each value is clipped into the range of the atoms and shared by its two neighbours, so that within the range the
    mean stays what it was. ``atoms`` rise in equal steps.
    """
    inside = jnp.clip(values, atoms[0], atoms[-1])
    share = 1.0 - jnp.abs(inside[:, None] - atoms[None, :]) / (atoms[1] - atoms[0])
    return chances @ jnp.clip(share, 0.0, 1.0)


def cross_entropy(target: Float[Array, " atoms"], logits: Float[Array, " atoms"]) -> Float[Array, ""]:
    r"""``-sum_i m_i log p_i`` of logits of ``p``: beside a constant the divergence ``KL(m || p)``, in nats."""
    return -jnp.sum(target * jax.nn.log_softmax(logits))
