"""What an action says of why it was taken."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def told(log_prob: Float[Array, " k"], mode: Int[Array, ""]) -> Float[Array, ""]:
    r"""Nats that an action says of its mode :math:`z`, one of ``k`` that were drawn evenly; at most :math:`\log k`.

    .. math:: \log \pi(a|z) - \log \frac{1}{k} \sum_{z'} \pi(a|z') = \log p(z|a) - \log p(z)

    ``log_prob`` is that of the action in every mode. The mean over actions and modes is their mutual information.
    """
    return log_prob[mode] - jax.nn.logsumexp(log_prob) + jnp.log(log_prob.shape[0])
