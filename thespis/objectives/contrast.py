"""Learning by contrast: two views of the same thing are alike, views of different things are not."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from thespis.objectives.normalise import mean

_NOT = -1e9


def info_nce(
    one: Float[Array, "n size"], other: Float[Array, "n size"], counts: Bool[Array, " n"], temperature: float | Array
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    r"""The contrastive loss (van den Oord et al., 2018), both ways, and how often the likeliest partner is the one.

    .. math:: -\frac{1}{2n} \sum_i \log \frac{e^{s_{ii}}}{\sum_j e^{s_{ij}}} + \log \frac{e^{s_{ii}}}{\sum_j e^{s_{ji}}}

    with :math:`s_{ij}` the cosine of ``one[i]`` and ``other[j]`` over ``temperature``. Pairs that do not count are in
    neither sum.
    """

    def unit(x: Array) -> Array:
        return x / jnp.sqrt(jnp.sum(x**2, axis=-1, keepdims=True) + 1e-8)

    alike = unit(one) @ unit(other).T / temperature
    found = mean((jnp.argmax(jnp.where(counts[None], alike, _NOT), axis=1) == jnp.arange(len(one))) * 1.0, counts)

    def missed(alike: Array) -> Array:
        return mean(-jnp.diagonal(jax.nn.log_softmax(jnp.where(counts[None], alike, _NOT), axis=1)), counts)

    return (missed(alike) + missed(alike.T)) / 2, found


def cluster_nce(scores: Float[Array, "n n"], labels: Int[Array, " n"], counts: Bool[Array, " n"]) -> Float[Array, " n"]:
    r"""How much each thing is missed among its like: of all that count, those with its label should score highest.

    .. math:: -\log \frac{\sum_{j: l_j = l_i} e^{s_{ij}}}{\sum_j e^{s_{ij}}}

    with itself among its like, as Hu et al. (2024) have it; 0 for what does not count.
    """
    alike = (labels[:, None] == labels) & counts
    every = jax.nn.logsumexp(jnp.where(counts, scores, _NOT), axis=1)
    same = jax.nn.logsumexp(jnp.where(alike, scores, _NOT), axis=1)
    return jnp.where(counts, every - same, 0.0)
