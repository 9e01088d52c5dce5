"""Statistics of a whole batch, over all axes: standardisation, ranks, masked means, explained variance."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def standardize(
    x: Float[Array, "*shape"], mask: Bool[Array, "*shape"] | None = None, epsilon: float = 1e-8
) -> Float[Array, "*shape"]:
    r"""Standardise: :math:`(x - \mu) / (\sigma + \epsilon)` over all entries in ``mask``.

    Entries outside the mask are 0. All entries equal (or one entry) gives zeros, never NaN. Call it once
    per batch, before splitting it into minibatches, so that the result does not depend on the split.
    """
    keep = jnp.ones(x.shape, bool) if mask is None else mask
    count = jnp.maximum(jnp.sum(keep, dtype=x.dtype), 1.0)
    centred = jnp.where(keep, x, 0.0)
    # Twice: the first mean is rounded, and dividing the remainder of equal entries by epsilon would magnify the error.
    for _ in range(2):
        centred = jnp.where(keep, centred - jnp.sum(centred) / count, 0.0)
    return centred / (jnp.sqrt(jnp.sum(centred**2) / count) + epsilon)


def centered_ranks(x: Float[Array, " n"]) -> Float[Array, " n"]:
    """Rank of each entry: how many it exceeds less how many exceed it, over ``2n``: in ``(-1/2, 1/2)``, ties equal."""
    return jnp.mean(jnp.sign(x[:, None] - x[None, :]), axis=1) / 2


def masked_mean(x: Float[Array, "*shape"], mask: Bool[Array, "*shape"] | None = None) -> Float[Array, ""]:
    """Mean of all entries in ``mask``; 0 if there are none. Entries outside add nothing, not even a NaN."""
    if mask is None:
        return jnp.mean(x)
    return jnp.sum(jnp.where(mask, x, 0.0)) / jnp.maximum(jnp.sum(mask, dtype=x.dtype), 1.0)


def explained_variance(
    prediction: Float[Array, "*shape"], target: Float[Array, "*shape"], mask: Bool[Array, "*shape"] | None = None
) -> Float[Array, ""]:
    r"""Explained variance :math:`1 - \mathrm{Var}(target - prediction) / \mathrm{Var}(target)`: 1 is perfect.

    A constant prediction has 0. 0 also where the target does not vary, so that the metric stays finite.
    """
    variance = _variance(target, mask)
    varies = variance > 0
    return jnp.where(varies, 1.0 - _variance(target - prediction, mask) / jnp.where(varies, variance, 1.0), 0.0)


def _variance(x: Float[Array, "*shape"], mask: Bool[Array, "*shape"] | None) -> Float[Array, ""]:
    return jnp.var(x) if mask is None else masked_mean(jnp.square(x - masked_mean(x, mask)), mask)
