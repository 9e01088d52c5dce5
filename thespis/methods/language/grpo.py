"""Group relative policy optimization: PPO-style updates of a language model with group-normalized returns.

Several dialogues with the same initial state form a group. Every token has the advantage ``(R - mean R) / std R`` of
its group; the loss is the clipped ratio of each token, averaged over the tokens of a dialogue and then over dialogues,
with a KL penalty to the initial model.

Source: Shao et al., 2024, equation 3. Three choices that were criticized since are settings:
``advantage_estimator.baseline=GroupMean`` and ``loss_reduction=FixedLength`` give Dr. GRPO (Liu et al., 2025),
``loss_reduction=TokenMean`` with ``objective.clip_range_high=0.28`` DAPO's loss (Yu et al., 2025).
``advantage_estimator=RewardToGo`` gives each turn its own advantage.
"""

from __future__ import annotations

from typing import ClassVar

from thespis.core.records import Citation
from thespis.learners.language.advantage_estimators import AdvantageEstimator, GroupNormalized, TrajectoryReturn
from thespis.learners.language.lm_policy_gradient import LMPolicyGradient
from thespis.learners.language.policy_losses import (
    K3,
    ClippedSurrogate,
    KLPenalty,
    LossReduction,
    PolicyLoss,
    SequenceMean,
)


class GRPO(LMPolicyGradient):
    """Group relative policy optimization: clipped policy gradient with group-normalized returns of dialogues."""

    advantage_estimator: AdvantageEstimator = TrajectoryReturn(GroupNormalized())
    """Advantage estimator: TrajectoryReturn or RewardToGo (with a group baseline), TurnGAE or TokenGAE."""
    objective: PolicyLoss = ClippedSurrogate()
    """Policy loss of the tokens: ClippedSurrogate, PolicyGradient, NegativeAwareLoss or ShapedRefinements."""
    loss_reduction: LossReduction = SequenceMean()
    """Average of the token losses: SequenceMean, TokenMean or FixedLength."""
    kl_penalty: KLPenalty | None = K3(0.04)
    """KL penalty to the initial model: None, ReverseKL, K3 or FirstTurnKL."""

    name: ClassVar[str] = "grpo"
    citations: ClassVar[tuple[Citation, ...]] = (Citation("DeepSeekMath", "Shao et al.", 2024, "arXiv:2402.03300"),)
    details: ClassVar[tuple[str, ...]] = (
        "advantages divided by the group's standard deviation (biased)",
        "k3 estimate of KL (biased)",
    )
