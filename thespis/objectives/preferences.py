r"""Losses of preferences, elementwise, to be minimised. Arguments are log-ratios of whole answers:

:math:`\log \pi(y|x) - \log \pi_{ref}(y|x)`, the sum over the tokens of ``y``. ``beta`` times that is the reward that
the policy stands for (Rafailov et al. 2023).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Number = float | Float[Array, ""]


def dpo(
    chosen: Float[Array, "*pair"], rejected: Float[Array, "*pair"], beta: Number, doubt: Number = 0.0
) -> Float[Array, "*pair"]:
    r""":math:`-\log \sigma(\beta (h_w - h_l))` (Rafailov et al. 2023, equation 7).

    Its minimum over all pairs of a Bradley-Terry reward is the policy that is best for that reward with a penalty
    ``beta`` on KL to the reference. ``doubt``: the probability that a label is the wrong way round (Mitchell 2023).
    """
    margin = beta * (chosen - rejected)
    return -(1 - doubt) * jax.nn.log_sigmoid(margin) - doubt * jax.nn.log_sigmoid(-margin)


def ipo(chosen: Float[Array, "*pair"], rejected: Float[Array, "*pair"], beta: Number) -> Float[Array, "*pair"]:
    r""":math:`(h_w - h_l - 1 / (2 \beta))^2` (Azar et al. 2023, equation 17).

    Preferences that are certain do not drive the policy away without bound, as they do in :func:`dpo`.
    """
    return (chosen - rejected - 0.5 / beta) ** 2


def hinge(chosen: Float[Array, "*pair"], rejected: Float[Array, "*pair"], beta: Number) -> Float[Array, "*pair"]:
    r""":math:`\max(0, 1 - \beta (h_w - h_l))` (Zhao et al. 2023, with the margin of :func:`dpo`)."""
    return jnp.maximum(0.0, 1.0 - beta * (chosen - rejected))


def kto(
    ratio: Float[Array, "*answer"],
    good: Bool[Array, "*answer"],
    beta: Number,
    point: Number,
    weights: tuple[Number, Number] = (1.0, 1.0),
) -> Float[Array, "*answer"]:
    r"""Answers that are good or bad, each by itself (Ethayarajh et al. 2024, equation 8).

    .. math:: \lambda_D (1 - \sigma(\beta (h - z))) \text{ if good, else } \lambda_U (1 - \sigma(\beta (z - h)))

    ``point`` is ``z``, KL of policy and reference over answers, no less than 0, through which no gradient flows;
    ``weights``: of good and of bad answers.
    """
    away = beta * (ratio - jax.lax.stop_gradient(point))
    return jnp.where(good, weights[0] * jax.nn.sigmoid(-away), weights[1] * jax.nn.sigmoid(away))
