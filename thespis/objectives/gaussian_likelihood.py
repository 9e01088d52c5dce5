"""Gaussian likelihood with a predicted variance, and soft bounds that keep a predicted log-variance in a range."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def gaussian_nll(
    mean: Float[Array, " dim"], log_variance: Float[Array, " dim"], target: Float[Array, " dim"]
) -> Float[Array, ""]:
    r"""Negative log-likelihood of a diagonal Gaussian, as a mean over dimensions and up to factor and constant.

    .. math:: \frac 1 d \sum_i \frac{(\mu_i - y_i)^2}{\sigma_i^2} + \log \sigma_i^2

    This is twice the negative log-likelihood per dimension without :math:`\log 2 \pi`.

    Source: Lakshminarayanan et al., 2017, eq. 1; Chua et al., 2018, section 3.
    """
    return jnp.mean(jnp.square(mean - target) * jnp.exp(-log_variance) + log_variance)


def soft_bound(
    x: Float[Array, "*shape"], low: Float[Array, "..."], high: Float[Array, "..."]
) -> Float[Array, "*shape"]:
    r"""``x`` bounded smoothly from both sides, with a gradient everywhere.

    .. math:: l + \text{softplus}(h - \text{softplus}(h - x) - l)

    Far below ``low`` it is ``low``, far above ``high`` it is above ``high`` by :math:`\log(1 + e^{l - h})`.

    Source: Chua et al., 2018, appendix A.1.
    """
    below_high = high - jax.nn.softplus(high - x)
    return low + jax.nn.softplus(below_high - low)
