"""REINFORCE leave-one-out: policy gradient whose baseline is the mean return of the group's other dialogues.

A group has the same initial state; nothing is clipped or normalized.

Source: Ahmadian et al., 2024; Kool et al., 2019.
"""

from __future__ import annotations

from typing import ClassVar

from thespis.core.records import Citation
from thespis.learners.language.advantage_estimators import AdvantageEstimator, LeaveOneOut, TrajectoryReturn
from thespis.learners.language.lm_policy_gradient import LMPolicyGradient
from thespis.learners.language.policy_losses import (
    FixedLength,
    KLPenalty,
    LossReduction,
    PolicyGradient,
    PolicyLoss,
    ReverseKL,
)


class RLOO(LMPolicyGradient):
    """REINFORCE leave-one-out: unclipped policy gradient with a leave-one-out group baseline, for dialogues."""

    advantage_estimator: AdvantageEstimator = TrajectoryReturn(LeaveOneOut())
    """Advantage estimator: TrajectoryReturn or RewardToGo (with a group baseline), TurnGAE or TokenGAE."""
    objective: PolicyLoss = PolicyGradient()
    """Policy loss of the tokens: PolicyGradient, ClippedSurrogate or NegativeAwareLoss."""
    loss_reduction: LossReduction = FixedLength()
    """Average of the token losses: FixedLength, TokenMean or SequenceMean."""
    kl_penalty: KLPenalty | None = ReverseKL(0.01)
    """KL penalty to the initial model: None, ReverseKL, K3 or FirstTurnKL."""

    name: ClassVar[str] = "rloo"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Back to Basics: Revisiting REINFORCE", "Ahmadian et al.", 2024, "arXiv:2402.14740"),
    )
    details: ClassVar[tuple[str, ...]] = ("a leave-one-out baseline",)
