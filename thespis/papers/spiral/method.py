"""SPIRAL: self-play policy gradient of a language model in text games, with a running baseline per player.

The running mean of a player's returns is subtracted from each return, so that a player with an advantage by the rules
does not reinforce all of its responses. ``rollout_transform.per_player=False`` uses one mean for all players. In a
single-agent environment it is REINFORCE with a running baseline.

Source: Liu et al., 2025, algorithm 1.

Differs: dialogues of one update have equal weight in the mean, and an entropy bonus can be added, without which
self-play cycles where the optimal strategy is mixed.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx

from thespis.core.records import Citation
from thespis.data.feeds import Episodes
from thespis.learners.language.advantage_estimators import AdvantageEstimator, NoBaseline, TrajectoryReturn
from thespis.learners.language.lm_policy_gradient import LMPolicyGradient
from thespis.learners.language.policy_losses import FixedLength, LossReduction, PolicyGradient, PolicyLoss
from thespis.learners.language.rollout_transforms import PlayerBaseline, RolloutTransform


class SPIRAL(LMPolicyGradient):
    """SPIRAL: self-play REINFORCE of a language model in text games, with a running baseline for each player."""

    rollout_transform: RolloutTransform | None = PlayerBaseline()
    """Transform of dialogues before the update: PlayerBaseline (subtracts each player's mean return), or another
    one."""
    advantage_estimator: AdvantageEstimator = TrajectoryReturn(NoBaseline())
    """Advantage estimator: TrajectoryReturn or RewardToGo (with a group baseline), TurnGAE or TokenGAE."""
    objective: PolicyLoss = PolicyGradient()
    """Policy loss of the tokens: PolicyGradient, ClippedSurrogate or NegativeAwareLoss."""
    loss_reduction: LossReduction = FixedLength()
    """Average of the token losses: FixedLength, TokenMean or SequenceMean."""
    feed: Episodes = eqx.field(static=True, default=Episodes(num_envs=64))
    """Dialogues: num_envs, max_steps (turns; 0: the environment's limit)."""

    name: ClassVar[str] = "spiral"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("SPIRAL: Self-Play on Zero-Sum Games", "Liu et al.", 2025, "arXiv:2506.24119"),
    )
    details: ClassVar[tuple[str, ...]] = ("a running mean of returns for each player",)
