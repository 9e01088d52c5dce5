r"""Alignment with a known reward and finitely many responses: the optimal policy, and how far another is from it.

The objective is :math:`J(\pi) = E_\pi[r] - \beta KL(\pi \| \pi_{ref})`. Its maximum is
:math:`\pi^*(y) \propto \pi_{ref}(y) \exp(r(y) / \beta)`, and any policy is :math:`J(\pi^*) - J(\pi) = \beta KL(\pi \|
\pi^*)` below it.

Source: Rafailov et al., 2023, equations 3 and 4.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.core.records import Number

LogProbs = Float[Array, "*prompt response"]


def optimal_log_probs(ref_log_probs: LogProbs, rewards: Float[Array, "*prompt response"], beta: Number) -> LogProbs:
    """Log-probabilities of the policy that maximizes the reward with a penalty ``beta`` > 0 on KL to the reference."""
    return jax.nn.log_softmax(ref_log_probs + rewards / beta, axis=-1)


def kl_divergence(log_probs: LogProbs, other_log_probs: LogProbs) -> Float[Array, "*prompt"]:
    """KL divergence from the first policy to the second, in nats; responses of probability 0 do not count."""
    probs = jnp.exp(log_probs)
    return jnp.sum(jnp.where(probs > 0, probs * (log_probs - other_log_probs), 0.0), axis=-1)


def regularized_reward(
    log_probs: LogProbs, ref_log_probs: LogProbs, rewards: Float[Array, "*prompt response"], beta: Number
) -> Float[Array, "*prompt"]:
    """The objective: expected reward minus ``beta`` times the KL divergence from the reference."""
    return jnp.sum(jnp.exp(log_probs) * rewards, axis=-1) - beta * kl_divergence(log_probs, ref_log_probs)


def optimality_gap(
    log_probs: LogProbs, ref_log_probs: LogProbs, rewards: Float[Array, "*prompt response"], beta: Number
) -> Float[Array, "*prompt"]:
    """How far the objective of a policy is below its maximum, at least 0."""
    return beta * kl_divergence(log_probs, optimal_log_probs(ref_log_probs, rewards, beta))
