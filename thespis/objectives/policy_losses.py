"""Policy losses and divergences between policies, elementwise. Every loss is to be minimised."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.core.records import Number


def ppo_clip_loss(
    log_ratio: Float[Array, "*shape"],
    advantage: Float[Array, "*shape"],
    clip_range: Number,
    clip_range_high: Number | None = None,
) -> Float[Array, "*shape"]:
    r"""Clipped surrogate loss of PPO (Schulman et al. 2017, equation 7, negated).

    .. math:: -\min\left(\rho A, \mathrm{clip}(\rho, 1 - \epsilon, 1 + \epsilon) A\right), \qquad
              \log \rho = \log \pi(a|s) - \log \pi_{old}(a|s)

    ``log_ratio`` is :math:`\log \rho`; no gradient flows into ``advantage``. ``clip_range_high``: another bound for
    ratios above 1 than for those below (Yu et al. 2025, equation 10).
    """
    advantage = jax.lax.stop_gradient(advantage)
    ratio = jnp.exp(log_ratio)
    return -jnp.minimum(
        ratio * advantage,
        jnp.clip(ratio, 1.0 - clip_range, 1.0 + (clip_range if clip_range_high is None else clip_range_high))
        * advantage,
    )


def policy_gradient_loss(log_prob: Float[Array, "*shape"], advantage: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    r"""Policy-gradient loss :math:`-A \log \pi(a|s)` (Williams 1992).

    No gradient flows into ``advantage``.
    """
    return -log_prob * jax.lax.stop_gradient(advantage)


# Three estimators of KL(q || p) from samples x ~ q (Schulman 2020, "Approximating KL divergence").
# log_ratio = log p(x) - log q(x). To monitor PPO: q is the acting policy, p the new one. As a penalty towards a
# reference: q is the policy in training, p the reference. A right value does not make a right gradient.


def kl_k1(log_ratio: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    r"""KL estimator k1: :math:`-\log(p/q)` for ``log_ratio`` :math:`= \log p(x) - \log q(x)`, samples from ``q``.

    Value: unbiased for KL(q || p), high variance, may be negative.
    Gradient with respect to q: **biased** (its expectation is 0, it regularises nothing).
    """
    return -log_ratio


def kl_k2(log_ratio: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    r"""KL estimator k2: :math:`\tfrac12 \log^2(p/q)` for ``log_ratio`` :math:`= \log p(x) - \log q(x)`.

    Samples are from ``q``.
    Value: **biased**, low variance, never negative.
    Gradient with respect to q: unbiased for KL(q || p) as long as the samples are from q itself; for
    samples of an older policy use :func:`reverse_kl`.
    """
    return 0.5 * log_ratio**2


def kl_k3(log_ratio: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    r"""KL estimator k3: :math:`p/q - 1 - \log(p/q)` for ``log_ratio`` :math:`= \log p(x) - \log q(x)`.

    Samples are from ``q``.
    Value: unbiased for KL(q || p), low variance, never negative: the one to monitor.
    Gradient with respect to q: **biased** (it is that of the other direction, KL(p || q)).
    """
    return jnp.expm1(log_ratio) - log_ratio


def reverse_kl(
    log_prob: Float[Array, "*shape"],
    reference_log_prob: Float[Array, "*shape"],
    behavior_log_prob: Float[Array, "*shape"],
) -> Float[Array, "*shape"]:
    r"""Reverse-KL penalty KL(policy || reference) from samples of a behaviour policy; arguments are log-probabilities.

    .. math:: \frac{\pi(x)}{\mu(x)} \left[\log \pi(x) - \log \pi_{ref}(x)\right], \qquad x \sim \mu

    Value and gradient are both unbiased, on-policy (pass ``stop_gradient(log_prob)``, or what was stored, as
    ``behavior_log_prob``) and off-policy alike, wherever the behaviour policy's support covers the policy's.
    """
    reference_log_prob, behavior_log_prob = jax.lax.stop_gradient((reference_log_prob, behavior_log_prob))
    return jnp.exp(log_prob - behavior_log_prob) * (log_prob - reference_log_prob)
