r"""Preference losses, elementwise, to be minimised. Arguments are log-ratios of whole responses:

:math:`\log \pi(y|x) - \log \pi_{ref}(y|x)`, the sum over the tokens of ``y``. ``beta`` times that is the implicit
reward of the policy (Rafailov et al. 2023).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from thespis.core.records import Number


def bradley_terry_loss(margin: Float[Array, "*pair"], label: Float[Array, "*pair"] | float) -> Float[Array, "*pair"]:
    r"""Cross-entropy of the probability :math:`\sigma(m)` that the first of a pair is better, to its label in [0, 1].

    ``margin``: the reward of the first minus that of the second. For labels of 0 there is no rounding of large margins.
    """
    return jax.nn.softplus(margin) - label * margin


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


def robust_dpo_loss(
    chosen: Float[Array, "*pair"], rejected: Float[Array, "*pair"], beta: Number, flip_probability: Number
) -> Float[Array, "*pair"]:
    r"""Robust DPO loss (Chowdhury et al. 2024, equation 12): in expectation that of labels that were not flipped.

    With :math:`\ell` the loss of a label, :math:`\ell'` that of the opposite one, and labels that are flipped with
    probability :math:`\epsilon < 1/2`, it is :math:`((1 - \epsilon) \ell - \epsilon \ell') / (1 - 2 \epsilon)`.
    """
    right, wrong = dpo_loss(chosen, rejected, beta), dpo_loss(rejected, chosen, beta)
    return ((1 - flip_probability) * right - flip_probability * wrong) / (1 - 2 * flip_probability)


def exo_loss(
    chosen: Float[Array, "*pair"], rejected: Float[Array, "*pair"], beta: Number, label_smoothing: Number
) -> Float[Array, "*pair"]:
    r"""EXO loss on pairs (Ji et al. 2024, equation 16): the reverse KL divergence of two Bernoulli distributions.

    It is :math:`KL(\sigma(\beta (h_w - h_l)) \| 1 - \epsilon)`: the policy's implicit preference is compared with
    labels that are wrong with probability :math:`\epsilon > 0`, ``label_smoothing``.
    """
    margin, wrong = beta * (chosen - rejected), jnp.asarray(label_smoothing)
    log_right, log_wrong = jax.nn.log_sigmoid(margin), jax.nn.log_sigmoid(-margin)
    return jnp.exp(log_right) * (log_right - jnp.log1p(-wrong)) + jnp.exp(log_wrong) * (log_wrong - jnp.log(wrong))


def sppo_loss(
    chosen: Float[Array, "*pair"],
    rejected: Float[Array, "*pair"],
    beta: Number,
    chosen_win_rate: Float[Array, "*pair"] | float = 1.0,
    rejected_win_rate: Float[Array, "*pair"] | float = 0.0,
) -> Float[Array, "*pair"]:
    r"""SPPO loss: :math:`(h_w - (P_w - 1/2) / \beta)^2 + (h_l - (P_l - 1/2) / \beta)^2`.

    :math:`P` is the probability to be preferred to a response of the policy; by default labels are certain. Source: Wu
    et al. 2024, equations 4.4 and 4.7; the paper's ``eta`` is ``1 / beta``.
    """
    return (chosen - (chosen_win_rate - 0.5) / beta) ** 2 + (rejected - (rejected_win_rate - 0.5) / beta) ** 2


def regression_loss(
    chosen: Float[Array, "*pair"], rejected: Float[Array, "*pair"], reward_gap: Float[Array, "*pair"], beta: Number
) -> Float[Array, "*pair"]:
    r"""REBEL loss :math:`(\beta (h_w - h_l) - (r_w - r_l))^2` (Gao et al. 2024, algorithm 1).

    Its minimum over all pairs is the policy that maximises the reward with a penalty ``beta`` on KL to the reference.
    """
    return (beta * (chosen - rejected) - reward_gap) ** 2


def soft_label_loss(
    first: Float[Array, "*pair"], second: Float[Array, "*pair"], reward_gap: Float[Array, "*pair"], beta: Number
) -> Float[Array, "*pair"]:
    r"""DNO's logistic regression: :math:`\sigma(\beta (h_1 - h_2))` is fitted to the label :math:`\sigma(r_1 - r_2)`.

    Its minimum over all pairs is that of :func:`regression_loss`: the policy whose ``beta`` times log-ratio is the
    reward to a constant, a step of mirror descent. Source: Rosset et al. 2024, algorithm 1.
    """
    return bradley_terry_loss(beta * (first - second), jax.nn.sigmoid(reward_gap))


def odds_ratio_loss(chosen: Float[Array, "*pair"], rejected: Float[Array, "*pair"]) -> Float[Array, "*pair"]:
    r"""Odds-ratio loss of ORPO, without its likelihood term (Hong et al. 2024, equation 7).

    It is :math:`-\log \sigma(\log \frac{odds_w}{odds_l})`, with :math:`odds = p / (1 - p)`. Arguments are
    log-probabilities per token, below 0.
    """
    log_odds = [log_prob - jnp.log(-jnp.expm1(jnp.minimum(log_prob, -1e-6))) for log_prob in (chosen, rejected)]
    return -jax.nn.log_sigmoid(log_odds[0] - log_odds[1])


def jensen_shannon_link(log_ratio: Float[Array, "*response"]) -> Float[Array, "*response"]:
    r"""Derivative of the Jensen-Shannon divergence's generator: :math:`\log \frac{2 r}{1 + r}` of a ratio ``r``.

    Source: Wang et al. 2023, table 1.
    """
    return jnp.log(2.0) + jax.nn.log_sigmoid(log_ratio)


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
