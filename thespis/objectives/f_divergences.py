r"""Alignment under an f-divergence, with a known reward and finitely many responses: the optimum, and gaps to it.

The objective is :math:`J(\pi) = E_\pi[r] - \beta D_f(\pi, \pi_{ref})` with :math:`D_f = E_{\pi_{ref}}[f(x)]` and the
ratio :math:`x = \pi / \pi_{ref}`. The optimum has :math:`\beta f'(x) = r - \lambda` wherever :math:`f'(0) = -\infty`,
with :math:`\lambda` such that probabilities sum to 1.

Generators :math:`f` are functions of the log-ratio, with :math:`f(1) = f'(1) = 0`, so that they are at least 0. A
*link* is :math:`f'` to a constant, as :class:`~thespis.learners.language.preference_losses.DivergenceLink` has it.

Source: Wang et al., 2023, theorem 1 and table 1.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.core.records import Number

LogProbs = Float[Array, "*prompt response"]
RatioFunction = Callable[[Float[Array, "*axes"]], Float[Array, "*axes"]]
"""A function of the log-ratio, element by element."""

MAX_LOG_RATIO = 30.0
"""Log-ratios of the optimum are found between this and its negative."""
_NUM_BISECTIONS = 50


def reverse_kl_generator(log_ratio: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
    """Generator of KL from the policy to the reference: ``x log x - x + 1``."""
    ratio = jnp.exp(log_ratio)
    return ratio * log_ratio - ratio + 1


def forward_kl_generator(log_ratio: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
    """Generator of KL from the reference to the policy: ``-log x + x - 1``."""
    return jnp.expm1(log_ratio) - log_ratio


def jensen_shannon_generator(log_ratio: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
    """Generator of twice the Jensen-Shannon divergence: ``x log x - (1 + x) log((1 + x) / 2)``."""
    ratio = jnp.exp(log_ratio)
    return ratio * log_ratio - (1 + ratio) * (jax.nn.softplus(log_ratio) - jnp.log(2.0))


def f_divergence(log_probs: LogProbs, ref_log_probs: LogProbs, generator: RatioFunction) -> Float[Array, "*prompt"]:
    """The divergence: the expected generator of the ratio, under the reference."""
    return jnp.sum(jnp.exp(ref_log_probs) * generator(log_probs - ref_log_probs), axis=-1)


def optimal_log_ratios(
    ref_log_probs: LogProbs, rewards: Float[Array, "*prompt response"], beta: Number, link: RatioFunction
) -> LogProbs:
    r"""Log-ratios of the policy that maximizes the reward with a penalty ``beta`` > 0 on the divergence.

    :math:`\lambda` and the inverse of the link, which increases, are found by bisection, so any link will do.
    """
    zero = link(jnp.zeros(()))

    def log_ratios(multiplier: Float[Array, "*prompt"]) -> LogProbs:
        targets = (rewards - multiplier[..., None]) / beta
        bound = jnp.full(targets.shape, MAX_LOG_RATIO)
        return _bisect(lambda x: link(x) > targets, -bound, bound)

    def is_too_large(multiplier: Float[Array, "*prompt"]) -> Array:
        return jax.nn.logsumexp(ref_log_probs + log_ratios(multiplier), axis=-1) < 0

    multiplier = _bisect(is_too_large, rewards.min(axis=-1) - beta * zero, rewards.max(axis=-1) - beta * zero)
    return log_ratios(multiplier)


def f_optimality_gap(
    log_probs: LogProbs,
    ref_log_probs: LogProbs,
    rewards: Float[Array, "*prompt response"],
    beta: Number,
    generator: RatioFunction,
    link: RatioFunction,
) -> Float[Array, "*prompt"]:
    """How far the reward less ``beta`` times the divergence is below its maximum."""
    best = ref_log_probs + optimal_log_ratios(ref_log_probs, rewards, beta, link)
    best = jax.nn.log_softmax(best, axis=-1)
    objectives = [
        jnp.sum(jnp.exp(x) * rewards, axis=-1) - beta * f_divergence(x, ref_log_probs, generator)
        for x in (best, log_probs)
    ]
    return objectives[0] - objectives[1]


def _bisect(
    is_above: Callable[[Float[Array, "*axes"]], Array], low: Float[Array, "*axes"], high: Float[Array, "*axes"]
) -> Float[Array, "*axes"]:
    """The point between ``low`` and ``high`` from which on ``is_above`` holds."""

    def halve(_: int, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = (bounds[0] + bounds[1]) / 2
        above = is_above(middle)
        return jnp.where(above, bounds[0], middle), jnp.where(above, middle, bounds[1])

    low, high = jax.lax.fori_loop(0, _NUM_BISECTIONS, halve, (low, high))
    return (low + high) / 2
