"""Preference losses of dialogue pairs: DPO and its variants, with or without a reference model.

A loss sees what the policy and the reference make of both dialogues of a pair, :class:`ResponseScores`. Formulas are in
:mod:`thespis.objectives.preferences`. ``h`` is the log-ratio of policy and reference.
"""

from __future__ import annotations

import abc
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from thespis.core.records import Number
from thespis.learners.language.dialogues import Dialogues, sum_over_tokens
from thespis.objectives import preferences

Losses = Float[Array, " pair"]


class ResponseScores(eqx.Module):
    """What a preference loss may use of one dialogue of each pair; sums are over all of its response tokens."""

    log_prob: Float[Array, " pair"]
    """Log-probability by the policy."""
    ref_log_prob: Float[Array, " pair"]
    """Log-probability by the reference, without gradient; 0 without one."""
    num_tokens: Int[Array, " pair"]
    """Number of response tokens."""
    returns: Float[Array, " pair"]
    """Return of the dialogue; chosen and rejected ones of a file have 1 and 0."""

    @classmethod
    def from_dialogues(
        cls,
        dialogues: Dialogues,
        log_probs: Float[Array, "time row token"],
        ref_log_probs: Float[Array, "time row token"],
    ) -> ResponseScores:
        """Scores of each dialogue from the log-probabilities of its response tokens."""
        mask = dialogues.response_mask
        sums = sum_over_tokens(log_probs, mask), sum_over_tokens(ref_log_probs, mask)
        return cls(*sums, mask.sum(axis=(0, 2)), dialogues.returns)

    @property
    def log_ratio(self) -> Float[Array, " pair"]:
        """Log-ratio of policy and reference."""
        return self.log_prob - self.ref_log_prob

    @property
    def mean_log_prob(self) -> Float[Array, " pair"]:
        """Log-probability by the policy per token."""
        return self.log_prob / jnp.maximum(self.num_tokens, 1)

    @property
    def mean_log_ratio(self) -> Float[Array, " pair"]:
        """Log-ratio of policy and reference per token."""
        return self.log_ratio / jnp.maximum(self.num_tokens, 1)


def order_pairs(
    first: ResponseScores, second: ResponseScores, first_is_better: Bool[Array, " pair"]
) -> tuple[ResponseScores, ResponseScores]:
    """The better and the worse dialogue of each pair."""

    def choose(x: ResponseScores, y: ResponseScores) -> ResponseScores:
        return jax.tree.map(lambda x, y: jnp.where(first_is_better, x, y), x, y)

    return choose(first, second), choose(second, first)


class DivergenceLink(eqx.Module):
    """Slot: the implicit reward as a function of the log-ratio, ``f'(ratio)`` of an f-divergence (Wang et al. 2023)."""

    @abc.abstractmethod
    def __call__(self, log_ratio: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
        """Implicit reward divided by ``beta``, to a constant."""


class ReverseKLLink(DivergenceLink):
    """Reverse KL divergence, as in DPO: the log-ratio itself."""

    def __call__(self, log_ratio: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
        """The log-ratio."""
        return log_ratio


class ForwardKLLink(DivergenceLink):
    """Forward KL divergence: minus the inverse of the ratio."""

    def __call__(self, log_ratio: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
        """Minus the inverse of the ratio."""
        return -jnp.exp(-log_ratio)


class JensenShannonLink(DivergenceLink):
    """Jensen-Shannon divergence: ``log(2 ratio / (1 + ratio))``."""

    def __call__(self, log_ratio: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
        """The link of the divergence."""
        return preferences.jensen_shannon_link(log_ratio)


class AlphaLink(DivergenceLink):
    """Alpha divergence: ``(1 - ratio**-alpha) / alpha``, between reverse KL (near 0) and forward KL (1)."""

    alpha: Number = 0.5
    """Order of the divergence, above 0 and at most 1."""

    def __call__(self, log_ratio: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
        """The link of the divergence."""
        return -jnp.expm1(-self.alpha * log_ratio) / self.alpha


class PreferenceLoss(eqx.Module):
    """Slot: the loss of a preference between two dialogues."""

    needs_reference: ClassVar[bool] = True
    """Whether the loss uses the reference model; if not, none is stored or evaluated."""

    @property
    def orders_pairs(self) -> bool:
        """Whether the first of a pair must be the better one; else losses read returns, and take pairs in any order."""
        return True

    @abc.abstractmethod
    def __call__(self, chosen: ResponseScores, rejected: ResponseScores) -> Losses:
        """Loss of each pair."""


class SigmoidLoss(PreferenceLoss):
    """DPO loss (Rafailov et al. 2023); with ``label_smoothing`` the conservative one (Mitchell 2023)."""

    beta: Number = 0.1
    """Weight of the divergence from the reference, above 0: the smaller, the further the policy may move."""
    label_smoothing: Number = 0.0
    """Probability that a preference label is flipped, below 1/2."""
    link: DivergenceLink = ReverseKLLink()
    """Divergence from the reference: ReverseKLLink (DPO), ForwardKLLink, JensenShannonLink or AlphaLink."""

    def __call__(self, chosen: ResponseScores, rejected: ResponseScores) -> Losses:
        """See :func:`thespis.objectives.preferences.dpo_loss`."""
        scores = self.link(chosen.log_ratio), self.link(rejected.log_ratio)
        return preferences.dpo_loss(*scores, self.beta, self.label_smoothing)


class RobustLoss(PreferenceLoss):
    """Robust DPO loss (Chowdhury et al. 2024): unbiased if labels are flipped with a known probability."""

    beta: Number = 0.1
    """Weight of the divergence from the reference, above 0."""
    flip_probability: Number = 0.1
    """Probability that a preference label is flipped, below 1/2."""

    def __call__(self, chosen: ResponseScores, rejected: ResponseScores) -> Losses:
        """See :func:`thespis.objectives.preferences.robust_dpo_loss`."""
        return preferences.robust_dpo_loss(chosen.log_ratio, rejected.log_ratio, self.beta, self.flip_probability)


class IPOLoss(PreferenceLoss):
    """IPO loss (Azar et al. 2023), with its minimum at a margin of ``1 / (2 beta)``, however certain the preference."""

    beta: Number = 0.1
    """Weight of the divergence from the reference, above 0."""
    per_token: bool = eqx.field(static=True, default=False)
    """Whether log-ratios are means over tokens in place of sums, as the paper's authors computed them."""

    def __call__(self, chosen: ResponseScores, rejected: ResponseScores) -> Losses:
        """See :func:`thespis.objectives.preferences.ipo_loss`."""
        if self.per_token:
            return preferences.ipo_loss(chosen.mean_log_ratio, rejected.mean_log_ratio, self.beta)
        return preferences.ipo_loss(chosen.log_ratio, rejected.log_ratio, self.beta)


class HingeLoss(PreferenceLoss):
    """SLiC hinge loss (Zhao et al. 2023), zero for a margin of ``1 / beta`` or more."""

    beta: Number = 0.1
    """Inverse of the margin, above 0."""

    def __call__(self, chosen: ResponseScores, rejected: ResponseScores) -> Losses:
        """See :func:`thespis.objectives.preferences.hinge_loss`."""
        return preferences.hinge_loss(chosen.log_ratio, rejected.log_ratio, self.beta)


class EXOLoss(PreferenceLoss):
    """EXO loss (Ji et al. 2024): the reverse KL divergence to the labels, in place of DPO's forward one."""

    beta: Number = 0.1
    """Weight of the divergence from the reference, above 0."""
    label_smoothing: Number = 1e-3
    """Probability that a preference label is flipped, above 0 and below 1/2."""

    def __call__(self, chosen: ResponseScores, rejected: ResponseScores) -> Losses:
        """See :func:`thespis.objectives.preferences.exo_loss`."""
        return preferences.exo_loss(chosen.log_ratio, rejected.log_ratio, self.beta, self.label_smoothing)


class SPPOLoss(PreferenceLoss):
    """SPPO loss (Wu et al. 2024): each log-ratio is fitted to how much more often than half its dialogue wins."""

    beta: Number = 0.1
    """Weight of the divergence from the reference, above 0."""
    win_rates: bool = eqx.field(static=True, default=False)
    """Whether returns are win rates, as of the feedback win-rate; else the chosen one wins always."""

    @property
    def orders_pairs(self) -> bool:
        """Not where the returns say who wins."""
        return not self.win_rates

    def __call__(self, chosen: ResponseScores, rejected: ResponseScores) -> Losses:
        """See :func:`thespis.objectives.preferences.sppo_loss`."""
        wins = (chosen.returns, rejected.returns) if self.win_rates else (1.0, 0.0)
        return preferences.sppo_loss(chosen.log_ratio, rejected.log_ratio, self.beta, *wins)


class RegressionLoss(PreferenceLoss):
    """REBEL loss (Gao et al. 2024): the difference of log-ratios is fitted to that of returns.

    With a fixed reference it has the gradient of CoPG (Flet-Berliac et al. 2024) but for a factor of ``2 beta``.
    """

    beta: Number = 0.1
    """Weight of the divergence from the reference, above 0: the inverse of the paper's step size."""

    @property
    def orders_pairs(self) -> bool:
        """No: the loss reads returns."""
        return False

    def __call__(self, chosen: ResponseScores, rejected: ResponseScores) -> Losses:
        """See :func:`thespis.objectives.preferences.regression_loss`."""
        return preferences.regression_loss(
            chosen.log_ratio, rejected.log_ratio, chosen.returns - rejected.returns, self.beta
        )


class DNOLoss(PreferenceLoss):
    """DNO loss (Rosset et al. 2024): a logistic regression of log-ratios on the difference of two win rates."""

    beta: Number = 0.1
    """Weight of the divergence from the reference, above 0: the paper's eta."""

    @property
    def orders_pairs(self) -> bool:
        """No: the loss reads returns, which are win rates."""
        return False

    def __call__(self, chosen: ResponseScores, rejected: ResponseScores) -> Losses:
        """See :func:`thespis.objectives.preferences.soft_label_loss`."""
        return preferences.soft_label_loss(
            chosen.log_ratio, rejected.log_ratio, chosen.returns - rejected.returns, self.beta
        )


class NashMDLoss(PreferenceLoss):
    r"""Nash-MD policy gradient (Munos et al. 2023, equation 5): raises the win rate of the first dialogue of a pair.

    .. math:: -(P - 1/2 - \tau \log \frac{\pi(y)}{\mu(y)}) \log \pi(y)

    with no gradient through the factor. :math:`P` is the return: the probability that it is preferred to the second,
    whose log-probability does not count.
    """

    kl_coef: Number = 0.05
    """Weight of KL to the reference, at least 0: the paper's tau."""

    @property
    def orders_pairs(self) -> bool:
        """No: the second is the opponent's."""
        return False

    def __call__(self, chosen: ResponseScores, rejected: ResponseScores) -> Losses:
        """Policy-gradient loss of the first dialogue."""
        advantage = chosen.returns - 0.5 - self.kl_coef * chosen.log_ratio
        return -jax.lax.stop_gradient(advantage) * chosen.log_prob


class SimPOLoss(PreferenceLoss):
    """SimPO loss (Meng et al. 2024): a margin between log-probabilities per token, without a reference."""

    beta: Number = 2.0
    """Scale of log-probabilities per token, above 0."""
    margin: Number = 0.5
    """Margin that chosen dialogues should have, at least 0: the paper's gamma divided by beta."""

    needs_reference: ClassVar[bool] = False

    def __call__(self, chosen: ResponseScores, rejected: ResponseScores) -> Losses:
        """DPO's loss on the difference of mean log-probabilities, minus the margin."""
        return preferences.dpo_loss(chosen.mean_log_prob - self.margin, rejected.mean_log_prob, self.beta)


class ORPOLoss(PreferenceLoss):
    """ORPO loss (Hong et al. 2024): likelihood of the chosen dialogue and its odds against the rejected one."""

    odds_weight: Number = 0.1
    """Weight of the odds, above 0: the paper's lambda."""

    needs_reference: ClassVar[bool] = False

    def __call__(self, chosen: ResponseScores, rejected: ResponseScores) -> Losses:
        """See :func:`thespis.objectives.preferences.odds_ratio_loss`."""
        odds = preferences.odds_ratio_loss(chosen.mean_log_prob, rejected.mean_log_prob)
        return self.odds_weight * odds - chosen.mean_log_prob


class RPOLoss(PreferenceLoss):
    """RPO loss (Pang et al. 2024): a preference loss, and the chosen dialogue's likelihood, so that it stays likely."""

    loss: PreferenceLoss = SigmoidLoss()
    """The preference loss."""
    likelihood_weight: Number = 1.0
    """Weight of the chosen dialogue's mean negative log-likelihood per token, at least 0: the paper's alpha."""

    def __check_init__(self):
        """Raise ``ValueError`` for a loss that needs no reference, or does not order pairs."""
        if not (self.loss.needs_reference and self.loss.orders_pairs):
            raise ValueError(f"{type(self.loss).__name__}: RPO needs a loss with a reference that orders pairs")

    def __call__(self, chosen: ResponseScores, rejected: ResponseScores) -> Losses:
        """The preference loss and the weighted negative log-likelihood."""
        return self.loss(chosen, rejected) - self.likelihood_weight * chosen.mean_log_prob


class CPLLoss(PreferenceLoss):
    """CPL loss (Hejna et al. 2023): log-probabilities as advantages, compared between the two dialogues."""

    alpha: Number = 0.1
    """Scale of log-probabilities, above 0."""
    bias: Number = 0.5
    """Weight of the rejected dialogue, above 0 and at most 1: below 1 both must not become unlikely."""

    needs_reference: ClassVar[bool] = False

    def __call__(self, chosen: ResponseScores, rejected: ResponseScores) -> Losses:
        """DPO's loss on log-probabilities in place of log-ratios, the rejected ones weighted."""
        return preferences.dpo_loss(chosen.log_prob, self.bias * rejected.log_prob, self.alpha)
