r"""Formulas of variational preference learning: KL divergence to the prior, its annealing, and what queries tell."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def gaussian_kl(
    mean: Float[Array, " latent"],
    log_var: Float[Array, " latent"],
    prior_mean: Float[Array, " latent"],
    prior_log_var: Float[Array, " latent"],
) -> Float[Array, ""]:
    """KL divergence of a diagonal normal distribution from another one, in nats."""
    ratio = jnp.exp(log_var - prior_log_var)
    shift = jnp.square(mean - prior_mean) * jnp.exp(-prior_log_var)
    return 0.5 * jnp.sum(prior_log_var - log_var + ratio + shift - 1.0)


def cyclical_weight(step: Int[Array, ""], num_steps: int, num_cycles: int) -> Float[Array, ""]:
    r"""Weight that rises from 0 to 1 by :math:`(1 - \cos \pi x) / 2` in each of a number of equal cycles.

    With no cycles it is 1.
    """
    if num_cycles == 0:
        return jnp.ones(())
    cycle = num_steps / num_cycles
    return 0.5 * (1.0 - jnp.cos(jnp.pi * (step % cycle) / cycle))


def information_gain(
    mean: Float[Array, "outcome latent"], log_var: Float[Array, "outcome latent"], prob: Float[Array, " outcome"]
) -> Float[Array, ""]:
    r"""How much the answers to queries are expected to tell of a latent, in nats: :math:`H(z) - E[H(z | answers)]`.

    ``mean``, ``log_var``: the posterior after each outcome; ``prob``: how likely outcomes are. The entropy before is
    that of the normal distribution with the variances of the mixture, an upper bound.
    """
    variance = prob @ (jnp.exp(log_var) + jnp.square(mean)) - jnp.square(prob @ mean)
    return 0.5 * jnp.sum(jnp.log(variance) - prob @ log_var)


def probit_loss(
    mean: Float[Array, "*axes 2"], log_std: Float[Array, "*axes 2"], label: Float[Array, "*axes"]
) -> Float[Array, "*axes"]:
    r"""Cross-entropy of :math:`\Phi((\mu_1 - \mu_2) / \sqrt{\sigma_1^2 + \sigma_2^2})` to a label in [0, 1].

    That is the probability that the first of two is better, where each has a normal distribution of rewards. Source:
    Siththaranjan et al., 2023 (arXiv:2312.08358).
    """
    margin = (mean[..., 0] - mean[..., 1]) / jnp.sqrt(jnp.sum(jnp.exp(2.0 * log_std), axis=-1))
    log_cdf = jax.scipy.stats.norm.logcdf
    return -label * log_cdf(margin) - (1.0 - label) * log_cdf(-margin)
