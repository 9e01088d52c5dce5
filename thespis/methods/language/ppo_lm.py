"""PPO for language models: clipped surrogate with generalized advantages from a token-level critic.

Source: Schulman et al., 2017; for language as in Ziegler et al., 2019: with a KL penalty to the initial model.
``advantage_estimator=TurnGAE`` values turns instead of tokens.

Differs: the penalty is a loss and not a part of the reward, and the critic is a linear head on the actor's features,
unless ``separate_value_model`` is set.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx

from thespis.core.records import Citation
from thespis.data.feeds import Episodes
from thespis.learners.language.advantage_estimators import AdvantageEstimator, TokenGAE
from thespis.learners.language.lm_policy_gradient import LMPolicyGradient
from thespis.learners.language.policy_losses import (
    ClippedSurrogate,
    KLPenalty,
    LossReduction,
    PolicyLoss,
    ReverseKL,
    TokenMean,
)


class LanguagePPO(LMPolicyGradient):
    """PPO for language models: clipped policy gradient with a learned value head and GAE, for multi-turn dialogues."""

    advantage_estimator: AdvantageEstimator = TokenGAE()
    """Advantage estimator: TokenGAE or TurnGAE, TrajectoryReturn or RewardToGo (with a group baseline)."""
    objective: PolicyLoss = ClippedSurrogate()
    """Policy loss of the tokens: ClippedSurrogate, PolicyGradient or NegativeAwareLoss."""
    loss_reduction: LossReduction = TokenMean()
    """Average of the token losses: TokenMean, SequenceMean or FixedLength."""
    kl_penalty: KLPenalty | None = ReverseKL(0.01)
    """KL penalty to the initial model: None, ReverseKL, K3 or FirstTurnKL."""
    normalize_advantage: bool = eqx.field(static=True, default=True)
    """Whether advantages are normalized to mean 0 and standard deviation 1 over the batch."""
    num_epochs: int = eqx.field(static=True, default=2)
    """Epochs: passes over each set of dialogues."""
    feed: Episodes = eqx.field(static=True, default=Episodes(num_envs=64))
    """Dialogues: group_size (with the same initial state), num_envs, max_steps (turns; 0: the environment's limit)."""

    name: ClassVar[str] = "ppo-lm"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Proximal Policy Optimization Algorithms", "Schulman et al.", 2017, "arXiv:1707.06347"),
        Citation("Fine-Tuning Language Models from Human Preferences", "Ziegler et al.", 2019, "arXiv:1909.08593"),
    )
    details: ClassVar[tuple[str, ...]] = ("advantages normalized over the batch", "critic and actor share features")
