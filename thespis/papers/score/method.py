r"""SCoRe: two-stage reinforcement learning of self-correction, in which a second attempt improves on the first.

In the first updates only the last attempt is rewarded, and the first is kept close to the initial model by a KL
penalty, so that it continues to make the same errors; afterwards every attempt has the reward :math:`r_i + \alpha (r_i
- r_{i-1})`, which includes its progress, with a small KL penalty on all attempts. Each attempt has the advantage of its
own reward over those of the other dialogues with the same question.

Source: Kumar et al., 2024, stages I and II. Alpha is 10, and the KL coefficients are 0.01 and, for first attempts in
the first stage, 0.1, as for mathematics in the paper (for programs the latter is 0.25).

The rewards are a feedback, ``--feedback attempt-progress`` (:mod:`thespis.papers.score.attempt_progress`); without it
this method learns from those of the environment.

Differs: the first stage is a number of updates of one run, ``feedback.num_stage1_updates`` and
``kl_penalty.num_stage1_updates``; the reward of the second attempt is not credited to the first, where alpha above 1
would reward it for being wrong. Needs an environment that rewards each attempt, such as
``Correction(first_reward=1.0)``.
"""

from __future__ import annotations

from typing import ClassVar

from thespis.core.records import Citation
from thespis.learners.language.advantage_estimators import AdvantageEstimator, LeaveOneOut, RewardToGo
from thespis.learners.language.lm_policy_gradient import LMPolicyGradient
from thespis.learners.language.policy_losses import (
    FirstTurnKL,
    FixedLength,
    KLPenalty,
    LossReduction,
    PolicyGradient,
    PolicyLoss,
)


class SCoRe(LMPolicyGradient):
    """SCoRe: two-stage policy gradient that trains a language model to correct its own answers.

    With the feedback ``attempt-progress``, which rewards progress in the second stage.
    """

    advantage_estimator: AdvantageEstimator = RewardToGo(LeaveOneOut(), 0.0)
    """Advantage estimator: RewardToGo or TrajectoryReturn (with a group baseline), TurnGAE or TokenGAE."""
    objective: PolicyLoss = PolicyGradient()
    """Policy loss of the tokens: PolicyGradient, ClippedSurrogate or NegativeAwareLoss."""
    loss_reduction: LossReduction = FixedLength()
    """Average of the token losses: FixedLength, TokenMean or SequenceMean."""
    kl_penalty: KLPenalty | None = FirstTurnKL()
    """KL penalty to the initial model: FirstTurnKL, ReverseKL, K3 or None."""

    name: ClassVar[str] = "score"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Training Language Models to Self-Correct via RL", "Kumar et al.", 2024, "arXiv:2409.12917"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "a first stage keeps first responses close to the initial model",
        "progress is rewarded in the second (--feedback attempt-progress)",
    )
