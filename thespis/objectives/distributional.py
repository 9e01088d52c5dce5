"""Categorical return distributions: probabilities of fixed, equally spaced atoms (Bellemare et al. 2017)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def project_categorical(
    values: Float[Array, " from"], probs: Float[Array, " from"], atoms: Float[Array, " to"]
) -> Float[Array, " to"]:
    r"""Project the distribution of ``values`` with probabilities ``probs`` onto ``atoms`` (equation 7).

    .. math:: m_i = \sum_j p_j \left[ 1 - \frac{|[x_j]_{z_1}^{z_n} - z_i|}{\Delta z} \right]_0^1

    Each value is clipped into the range of the atoms and shared by its two neighbours, so that within the range the
    mean is preserved. ``atoms`` rise in equal steps.
    """
    clipped = jnp.clip(values, atoms[0], atoms[-1])
    share = 1.0 - jnp.abs(clipped[:, None] - atoms[None, :]) / (atoms[1] - atoms[0])
    return probs @ jnp.clip(share, 0.0, 1.0)


def categorical_cross_entropy(target: Float[Array, " atoms"], logits: Float[Array, " atoms"]) -> Float[Array, ""]:
    r"""Cross-entropy ``-sum_i m_i log p_i`` in nats, from logits of ``p``.

    Up to a constant it is the divergence ``KL(m || p)``.
    """
    return -jnp.sum(target * jax.nn.log_softmax(logits))
