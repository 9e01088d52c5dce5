"""Token losses of language-model policies: policy objectives, loss reductions and KL penalties."""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from thespis.core.records import Number
from thespis.objectives import group_advantages
from thespis.objectives.policy_losses import kl_k3, policy_gradient_loss, ppo_clip_loss, reverse_kl

TokenArray = Float[Array, "*axes"]


class PolicyLoss(eqx.Module):
    """Slot: the policy objective of each token."""

    @abc.abstractmethod
    def __call__(self, log_prob: TokenArray, log_ratio: TokenArray, advantage: TokenArray) -> TokenArray:
        """Loss of each token; ``log_ratio``: to the policy that sampled it."""


class PolicyGradient(PolicyLoss):
    """REINFORCE loss (Williams 1992): unbiased for the policy that sampled, so for one step on a batch."""

    def __call__(self, log_prob: TokenArray, log_ratio: TokenArray, advantage: TokenArray) -> TokenArray:
        """Policy-gradient loss of each token, ``-A log pi``."""
        return policy_gradient_loss(log_prob, advantage)


class ImportanceLevel(eqx.Module):
    """Slot: the actions whose importance ratio counts: tokens, or several tokens as one action."""

    @abc.abstractmethod
    def __call__(self, log_ratio: TokenArray) -> TokenArray:
        """Log-ratios of the actions at each of their tokens, from those of the tokens."""


class TokenLevelRatio(ImportanceLevel):
    """Token-level importance ratios: each token has its own."""

    def __call__(self, log_ratio: TokenArray) -> TokenArray:
        """Log-ratios of the tokens, unchanged."""
        return log_ratio


class TurnLevelRatio(ImportanceLevel):
    """Turn-level importance ratios: a response is one action (Chen et al. 2025, LOOP)."""

    def __call__(self, log_ratio: TokenArray) -> TokenArray:
        """Product of a response's ratios at each of its tokens, which keeps its own gradient."""
        return _sum_log_ratios(log_ratio, (2,))


class DialogueLevelRatio(ImportanceLevel):
    """Dialogue-level importance ratios: all responses of a dialogue are one action (Chen et al. 2025, LOOP)."""

    def __call__(self, log_ratio: TokenArray) -> TokenArray:
        """Product of a dialogue's ratios at each of its tokens, which keeps its own gradient."""
        return _sum_log_ratios(log_ratio, (0, 2))


def _sum_log_ratios(log_ratio: Float[Array, "time row token"], axes: tuple[int, ...]) -> TokenArray:
    """The sum over ``axes`` at every token, with the gradient of the token's own log-ratio only.

    Summed over the tokens this is the gradient of the sum. Log-ratios are 0 where there is no token.
    """
    total = log_ratio.sum(axis=axes, keepdims=True)
    return log_ratio + jax.lax.stop_gradient(total - log_ratio)


class ClippedSurrogate(PolicyLoss):
    """Clipped PPO surrogate of each token (Schulman et al. 2017), or of tokens that are one action together.

    With ``clip_range_high`` above ``clip_range`` unlikely tokens can grow (Yu et al. 2025).
    """

    clip_range: Number = 0.2
    """Largest decrease of the ratio that still has a gradient."""
    clip_range_high: Number = 0.2
    """Largest increase of the ratio that still has a gradient."""
    importance_level: ImportanceLevel = TokenLevelRatio()
    """Level of the importance ratio: TokenLevelRatio, TurnLevelRatio or DialogueLevelRatio."""

    def __call__(self, log_prob: TokenArray, log_ratio: TokenArray, advantage: TokenArray) -> TokenArray:
        """See :func:`thespis.objectives.policy_losses.ppo_clip_loss`."""
        return ppo_clip_loss(self.importance_level(log_ratio), advantage, self.clip_range, self.clip_range_high)


class LossReduction(eqx.Module):
    """Slot: how the losses of tokens become one number."""

    @abc.abstractmethod
    def __call__(self, losses: Float[Array, "row time"], mask: Bool[Array, "row time"]) -> Float[Array, ""]:
        """The loss of a batch, of whose tokens those count where ``mask`` is true."""


class TokenMean(LossReduction):
    """Mean over all tokens of the batch (Yu et al. 2025, DAPO)."""

    def __call__(self, losses: Float[Array, "row time"], mask: Bool[Array, "row time"]) -> Float[Array, ""]:
        """See :func:`thespis.objectives.group_advantages.token_mean`."""
        return group_advantages.token_mean(losses, mask)


class SequenceMean(LossReduction):
    """Mean over dialogues of the mean over their tokens (Shao et al. 2024, GRPO)."""

    def __call__(self, losses: Float[Array, "row time"], mask: Bool[Array, "row time"]) -> Float[Array, ""]:
        """See :func:`thespis.objectives.group_advantages.sequence_mean`."""
        return group_advantages.sequence_mean(losses, mask)


class FixedLength(LossReduction):
    """Sum divided by a constant, the number of tokens that a dialogue may have (Liu et al. 2025, Dr. GRPO)."""

    def __call__(self, losses: Float[Array, "row time"], mask: Bool[Array, "row time"]) -> Float[Array, ""]:
        """See :func:`thespis.objectives.group_advantages.fixed_length_mean`."""
        return group_advantages.fixed_length_mean(losses, mask, float(losses.shape[1]))


class KLPenalty(eqx.Module):
    """Slot: the penalty on each token for leaving the initial model."""

    @abc.abstractmethod
    def __call__(
        self, log_prob: TokenArray, log_ratio: TokenArray, ref_log_probs: TokenArray, update_index: Any
    ) -> TokenArray:
        """Penalty of each token; ``update_index`` counts updates."""


class ReverseKL(KLPenalty):
    """Reverse KL penalty to the initial model, per token, with an unbiased gradient.

    The effect of a token on the divergence of later ones is not included.
    """

    coef: Number = 0.01
    """Weight of the penalty, in units of advantage."""

    def __call__(
        self, log_prob: TokenArray, log_ratio: TokenArray, ref_log_probs: TokenArray, update_index: Any
    ) -> TokenArray:
        """See :func:`thespis.objectives.policy_losses.reverse_kl`."""
        return self.coef * reverse_kl(log_prob, ref_log_probs, log_prob - log_ratio)


class K3(KLPenalty):
    """K3 penalty of GRPO (Shao et al. 2024, equation 4). **Biased**: its gradient is that of the forward KL."""

    coef: Number = 0.04
    """Weight of the penalty, in units of advantage."""

    def __call__(
        self, log_prob: TokenArray, log_ratio: TokenArray, ref_log_probs: TokenArray, update_index: Any
    ) -> TokenArray:
        """See :func:`thespis.objectives.policy_losses.kl_k3`."""
        return self.coef * kl_k3(ref_log_probs - log_prob)


class FirstTurnKL(KLPenalty):
    """KL penalty as :class:`ReverseKL`, with a larger weight on first responses for the first ``num_stage1_updates``.

    So later responses learn to improve on what the model said before training (Kumar et al. 2024, SCoRe: stage I).
    """

    coef: Number = 0.01
    """Weight for all tokens, in units of advantage: their beta 1."""
    first_turn_coef: Number = 0.1
    """Weight for first responses in the first stage: their beta 2."""
    num_stage1_updates: int = eqx.field(static=True, default=100)
    """Updates of the first stage."""

    def __call__(
        self, log_prob: TokenArray, log_ratio: TokenArray, ref_log_probs: TokenArray, update_index: Any
    ) -> TokenArray:
        """As :class:`ReverseKL`, with weights by turn: ``[time, row, token]``."""
        first = (jnp.arange(log_prob.shape[0]) == 0) & (update_index < self.num_stage1_updates)
        weight = jnp.where(first, self.first_turn_coef, self.coef)[:, None, None]
        return weight * reverse_kl(log_prob, ref_log_probs, log_prob - log_ratio)
