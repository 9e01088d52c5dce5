"""REINFORCE for language models: policy gradient with the reward-to-go of each turn as advantage of its tokens.

Source: Williams, 1992. The baseline is a setting: ``advantage_estimator.baseline=LeaveOneOut`` compares with the other
dialogues that have the same initial state.
"""

from __future__ import annotations

from typing import ClassVar

from thespis.core.records import Citation
from thespis.learners.language.advantage_estimators import AdvantageEstimator, NoBaseline, RewardToGo
from thespis.learners.language.lm_policy_gradient import LMPolicyGradient
from thespis.learners.language.policy_losses import FixedLength, LossReduction, PolicyGradient, PolicyLoss


class REINFORCE(LMPolicyGradient):
    """REINFORCE for language models: policy gradient with rewards to go, for multi-turn dialogues."""

    advantage_estimator: AdvantageEstimator = RewardToGo(NoBaseline())
    """Advantage estimator: RewardToGo or TrajectoryReturn (with a group baseline), TurnGAE or TokenGAE."""
    objective: PolicyLoss = PolicyGradient()
    """Policy loss of the tokens: PolicyGradient, ClippedSurrogate or NegativeAwareLoss."""
    loss_reduction: LossReduction = FixedLength()
    """Average of the token losses: FixedLength, TokenMean or SequenceMean."""

    name: ClassVar[str] = "reinforce"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Simple Statistical Gradient-Following Algorithms", "Williams", 1992, "10.1007/BF00992696"),
    )
    details: ClassVar[tuple[str, ...]] = ("rewards to go",)
