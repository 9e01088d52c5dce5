"""Likelihood of answers that were right, and of those that were wrong under the policy that would have given them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from thespis.objectives.policies import Number


def negative_aware(
    log_ratio: Float[Array, "*shape"],
    right: Bool[Array, "*shape"],
    rate: Float[Array, "*shape"],
    floor: Number = 1.0,
) -> Float[Array, "*shape"]:
    r"""The loss of an id of an answer that a verifier has judged (Chen et al. 2025, NFT, equation 8), unweighted.

    .. math:: -\log R \text{ if right, else }
              -\log \max\nolimits_v\left(\frac{1 - \hat r R}{1 - \hat r}, \epsilon\right), \qquad

    with :math:`\log R = \log \pi(a|s) - \log \pi_{old}(a|s)`.

    The policy that has sampled is a mixture of one that is right and one that is wrong, with shares ``rate`` (in (0,
    1), of right answers to this question) and the rest. What learns is the first; the second is what the mixture
    leaves, so that wrong answers teach the first as well. ``max_v`` has the gradient of its first argument
    (straight-through), and ``floor`` is the least value whose logarithm is taken. No gradient flows into ``rate``.
    """
    rate = jax.lax.stop_gradient(rate)
    ratio = jnp.exp(jnp.minimum(log_ratio, 10.0))
    wrong = (1.0 - rate * ratio) / (1.0 - rate)
    wrong += jax.lax.stop_gradient(jnp.maximum(wrong, floor) - wrong)
    return jnp.where(right, -log_ratio, -jnp.log(wrong))
