r"""Losses of contexts: the triplet loss of preferences, and a penalty on their length."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.core.records import Number

_MIN_SQUARE = 1e-12
"""Added to squared lengths, whose root has no gradient at 0."""


def length(vectors: Float[Array, "*axes latent"]) -> Float[Array, "*axes"]:
    """Euclidean length, with a gradient at 0 too."""
    return jnp.sqrt(jnp.sum(jnp.square(vectors), axis=-1) + _MIN_SQUARE)


def triplet_margin_loss(
    anchor: Float[Array, " latent"],
    positive: Float[Array, "triplet latent"],
    negative: Float[Array, "triplet latent"],
    margin: Number = 1.0,
) -> Float[Array, " triplet"]:
    r"""Triplet loss: by how much a positive is not nearer to the anchor than its negative, by a margin.

    .. math:: \max\big(\| z - z^+ \|_2 - \| z - z^- \|_2 + m, \, 0\big)
    """
    return jnp.maximum(length(anchor - positive) - length(anchor - negative) + margin, 0.0)


def unit_length_penalty(vectors: Float[Array, "*axes latent"]) -> Float[Array, "*axes"]:
    r"""Squared difference of a length from 1."""
    return jnp.square(length(vectors) - 1.0)
