"""Negative-aware fine-tuning (NFT): supervised learning from the model's own right and wrong responses.

:func:`nft_loss` is the likelihood loss of a token in a correct or incorrect response; :class:`NegativeAwareLoss`
applies it to dialogues and weights prompts by their success rate.

Source: Chen et al., 2025.
"""

from __future__ import annotations

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from thespis.core.records import Number
from thespis.learners.language.policy_losses import PolicyLoss, TokenArray


def nft_loss(
    log_ratio: Float[Array, "*shape"],
    correct: Bool[Array, "*shape"],
    success_rate: Float[Array, "*shape"],
    min_value: Number = 1.0,
) -> Float[Array, "*shape"]:
    r"""Loss of one token of a response that a verifier has graded (Chen et al. 2025, NFT, equation 8), unweighted.

    .. math:: -\log R \text{ if correct, else }
              -\log \max\nolimits_v\left(\frac{1 - \hat r R}{1 - \hat r}, \epsilon\right), \qquad

    with :math:`\log R = \log \pi(a|s) - \log \pi_{old}(a|s)`.

    The sampling policy is a mixture of one that is correct, with share ``success_rate`` (in (0, 1), of correct
    responses to this prompt), and one that is incorrect. The first is trained; the second is what the mixture leaves,
    so that incorrect responses train the first as well. ``max_v`` has the gradient of its first argument
    (straight-through), and ``min_value`` is the least value whose logarithm is taken. No gradient flows into
    ``success_rate``.
    """
    success_rate = jax.lax.stop_gradient(success_rate)
    ratio = jnp.exp(jnp.minimum(log_ratio, 10.0))
    incorrect = (1.0 - success_rate * ratio) / (1.0 - success_rate)
    incorrect += jax.lax.stop_gradient(jnp.maximum(incorrect, min_value) - incorrect)
    return jnp.where(correct, -log_ratio, -jnp.log(incorrect))


class PromptWeight(eqx.Module):
    """Slot: the weight of a prompt by the success rate of its group."""

    @abc.abstractmethod
    def __call__(self, success_rate: TokenArray) -> TokenArray:
        """Weights of prompts, from success rates in (0, 1)."""


class FailureWeight(PromptWeight):
    """Prompt weight by the failure rate: on-policy, the gradient of Dr. GRPO."""

    def __call__(self, success_rate: TokenArray) -> TokenArray:
        """Weight of a prompt: ``1 - success_rate`` of its group."""
        return 1.0 - success_rate


class OddsWeight(PromptWeight):
    """Prompt weight by the square root of the failure odds: on-policy, the gradient of GRPO (Chen et al. 2025, 4.1)."""

    def __call__(self, success_rate: TokenArray) -> TokenArray:
        """``sqrt((1 - success_rate) / success_rate)``."""
        return jnp.sqrt((1.0 - success_rate) / success_rate)


class NegativeAwareLoss(PolicyLoss):
    """Likelihood of right responses, and of wrong ones under the implied negative policy (NFT).

    Needs rewards of 0 and 1 at the end and ``advantage_estimator=TrajectoryReturn(GroupMean)``: the success rate of a
    group is read from its advantages, which are ``1 - rate`` and ``-rate``. A group that is all right or all wrong has
    no loss.
    """

    weighting: PromptWeight = FailureWeight()
    """Weight of a prompt: FailureWeight or OddsWeight."""
    negative_coef: Number = 1.0
    """Weight of wrong responses; 0 is rejection-sampling fine-tuning on right ones alone (RFT)."""
    min_ratio: Number = 1.0
    """Lower bound of the implied ratio before its logarithm, in (0, 1]."""

    def __call__(self, log_prob: TokenArray, log_ratio: TokenArray, advantage: TokenArray) -> TokenArray:
        """See :func:`nft_loss`."""
        right, informative = advantage > 0, advantage != 0
        rate = jnp.where(informative, jnp.where(right, 1.0 - advantage, -advantage), 0.5)
        loss = self.weighting(rate) * nft_loss(log_ratio, right, rate, self.min_ratio)
        return jnp.where(informative, jnp.where(right, 1.0, self.negative_coef) * loss, 0.0)
