"""Contrastive losses: representations of the same thing should be similar, of different things not."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from thespis.objectives.statistics import masked_mean

_MASKED_LOGIT = -1e9


def info_nce(
    queries: Float[Array, "n size"], keys: Float[Array, "n size"], mask: Bool[Array, " n"], temperature: float | Array
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    r"""Symmetric InfoNCE loss (van den Oord et al., 2018), and the accuracy of picking the partner of a query.

    .. math:: -\frac{1}{2n} \sum_i \log \frac{e^{s_{ii}}}{\sum_j e^{s_{ij}}} + \log \frac{e^{s_{ii}}}{\sum_j e^{s_{ji}}}

    with :math:`s_{ij}` the cosine of ``queries[i]`` and ``keys[j]`` over ``temperature``. Pairs outside ``mask`` are in
    neither sum.
    """

    def normalize(x: Array) -> Array:
        return x / jnp.sqrt(jnp.sum(x**2, axis=-1, keepdims=True) + 1e-8)

    similarity = normalize(queries) @ normalize(keys).T / temperature
    accuracy = masked_mean(
        (jnp.argmax(jnp.where(mask[None], similarity, _MASKED_LOGIT), axis=1) == jnp.arange(len(queries))) * 1.0, mask
    )

    def cross_entropy(alike: Array) -> Array:
        return masked_mean(-jnp.diagonal(jax.nn.log_softmax(jnp.where(mask[None], alike, _MASKED_LOGIT), axis=1)), mask)

    return (cross_entropy(similarity) + cross_entropy(similarity.T)) / 2, accuracy


def cluster_nce(scores: Float[Array, "n n"], labels: Int[Array, " n"], mask: Bool[Array, " n"]) -> Float[Array, " n"]:
    r"""Cluster contrastive loss of each element: those with its label should score highest among all in ``mask``.

    .. math:: -\log \frac{\sum_{j: l_j = l_i} e^{s_{ij}}}{\sum_j e^{s_{ij}}}

    The element itself is among those with its label, as in Hu et al. (2024). 0 for elements outside ``mask``.
    """
    positives = (labels[:, None] == labels) & mask
    all_scores = jax.nn.logsumexp(jnp.where(mask, scores, _MASKED_LOGIT), axis=1)
    positive_scores = jax.nn.logsumexp(jnp.where(positives, scores, _MASKED_LOGIT), axis=1)
    return jnp.where(mask, all_scores - positive_scores, 0.0)
