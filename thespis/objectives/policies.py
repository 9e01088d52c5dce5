"""Losses of actors and divergences between policies, elementwise. Every loss is to be minimised."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Real

Number = int | float | Real[Array, ""]


def ppo_clip(
    log_ratio: Float[Array, "*shape"], advantage: Float[Array, "*shape"], clip: Number, rise: Number | None = None
) -> Float[Array, "*shape"]:
    r"""The clipped surrogate (Schulman et al. 2017, equation 7), negated.

    .. math:: -\min\left(\rho A, \mathrm{clip}(\rho, 1 - \epsilon, 1 + \epsilon) A\right), \qquad
              \log \rho = \log \pi(a|s) - \log \pi_{old}(a|s)

    ``log_ratio`` is that logarithm; no gradient flows into ``advantage``. ``rise``: another bound for rises than for
    falls (Yu et al. 2025, equation 10).
    """
    advantage = jax.lax.stop_gradient(advantage)
    ratio = jnp.exp(log_ratio)
    return -jnp.minimum(
        ratio * advantage, jnp.clip(ratio, 1.0 - clip, 1.0 + (clip if rise is None else rise)) * advantage
    )


def policy_gradient(log_prob: Float[Array, "*shape"], advantage: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    r""":math:`-A \log \pi(a|s)`, whose gradient is the policy gradient (Williams 1992).

    No gradient flows into ``advantage``.
    """
    return -log_prob * jax.lax.stop_gradient(advantage)


# Three estimators of KL(q || p) from samples x ~ q (Schulman 2020, "Approximating KL divergence").
# log_ratio = log p(x) - log q(x). PPO's monitor: q acted, p is the new policy. A penalty towards a
# reference: q is the learning policy, p the reference. A right value does not make a right gradient.


def kl_k1(log_ratio: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    r""":math:`-\log(p/q)` for ``log_ratio`` :math:`= \log p(x) - \log q(x)`, samples from ``q``.

    Value: unbiased for KL(q || p), high variance, may be negative.
    Gradient with respect to q: **biased** (its expectation is 0, it regularises nothing).
    """
    return -log_ratio


def kl_k2(log_ratio: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    r""":math:`\tfrac12 \log^2(p/q)` for ``log_ratio`` :math:`= \log p(x) - \log q(x)`, samples from ``q``.

    Value: **biased**, low variance, never negative.
    Gradient with respect to q: unbiased for KL(q || p) as long as the samples are from q itself; for
    samples of an older policy use :func:`reverse_kl`.
    """
    return 0.5 * log_ratio**2


def kl_k3(log_ratio: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    r""":math:`p/q - 1 - \log(p/q)` for ``log_ratio`` :math:`= \log p(x) - \log q(x)`, samples from ``q``.

    Value: unbiased for KL(q || p), low variance, never negative: the one to monitor.
    Gradient with respect to q: **biased** (it is that of the other direction, KL(p || q)).
    """
    return jnp.expm1(log_ratio) - log_ratio


def reverse_kl(
    log_prob: Float[Array, "*shape"],
    reference: Float[Array, "*shape"],
    behaviour: Float[Array, "*shape"],
) -> Float[Array, "*shape"]:
    r"""The penalty KL(policy || reference) from samples of a ``behaviour`` policy; arguments are log-probs.

    .. math:: \frac{\pi(x)}{\mu(x)} \left[\log \pi(x) - \log \pi_{ref}(x)\right], \qquad x \sim \mu

    Value and gradient are both unbiased, on-policy (pass ``stop_gradient(log_prob)``, or what was stored,
    as ``behaviour``) and off-policy alike, wherever the behaviour policy can choose what the policy can.
    """
    reference, behaviour = jax.lax.stop_gradient((reference, behaviour))
    return jnp.exp(log_prob - behaviour) * (log_prob - reference)
