r"""Preference losses, elementwise, to be minimised. Arguments are log-ratios of whole responses:

:math:`\log \pi(y|x) - \log \pi_{ref}(y|x)`, the sum over the tokens of ``y``. ``beta`` times that is the implicit
reward of the policy (Rafailov et al. 2023).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from thespis.core.records import Number


def dpo_loss(
    chosen: Float[Array, "*pair"], rejected: Float[Array, "*pair"], beta: Number, label_smoothing: Number = 0.0
) -> Float[Array, "*pair"]:
    r"""DPO loss :math:`-\log \sigma(\beta (h_w - h_l))` (Rafailov et al. 2023, equation 7).

    Its minimum over all pairs of a Bradley-Terry reward is the policy that maximises that reward with a penalty
    ``beta`` on KL to the reference. ``label_smoothing``: the probability that a label is wrong (Mitchell 2023).
    """
    margin = beta * (chosen - rejected)
    return -(1 - label_smoothing) * jax.nn.log_sigmoid(margin) - label_smoothing * jax.nn.log_sigmoid(-margin)


def ipo_loss(chosen: Float[Array, "*pair"], rejected: Float[Array, "*pair"], beta: Number) -> Float[Array, "*pair"]:
    r"""IPO loss :math:`(h_w - h_l - 1 / (2 \beta))^2` (Azar et al. 2023, equation 17).

    Deterministic preferences do not drive the policy away without bound, as they do in :func:`dpo_loss`.
    """
    return (chosen - rejected - 0.5 / beta) ** 2


def hinge_loss(chosen: Float[Array, "*pair"], rejected: Float[Array, "*pair"], beta: Number) -> Float[Array, "*pair"]:
    r"""Hinge loss :math:`\max(0, 1 - \beta (h_w - h_l))` (Zhao et al. 2023, with the margin of :func:`dpo_loss`)."""
    return jnp.maximum(0.0, 1.0 - beta * (chosen - rejected))


def kto_loss(
    log_ratio: Float[Array, "*response"],
    desirable: Bool[Array, "*response"],
    beta: Number,
    reference_kl: Number,
    weights: tuple[Number, Number] = (1.0, 1.0),
) -> Float[Array, "*response"]:
    r"""KTO loss: responses that are desirable or undesirable, without pairs (Ethayarajh et al. 2024, equation 8).

    .. math:: \lambda_D (1 - \sigma(\beta (h - z))) \text{ if desirable, else } \lambda_U (1 - \sigma(\beta (z - h)))

    ``reference_kl`` is ``z``, the KL of policy and reference over responses, at least 0; no gradient flows through it.
    ``weights``: of desirable and of undesirable responses.
    """
    margin = beta * (log_ratio - jax.lax.stop_gradient(reference_kl))
    return jnp.where(desirable, weights[0] * jax.nn.sigmoid(-margin), weights[1] * jax.nn.sigmoid(margin))
