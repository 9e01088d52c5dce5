"""ArCHer: hierarchical RL of language models with an off-policy critic of turns and token-level REINFORCE.

Turns are steps of a Markov decision process whose values are learned off-policy from replay by temporal differences, so
that the final reward is predicted at the turns before it. Within a response, REINFORCE gives all tokens the same
advantage.

Source: Zhou et al., 2024; :mod:`thespis.learners.language.turn_critic` says what differs.

Differs here: one epoch over the sampled dialogues.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx

from thespis.core.records import Citation
from thespis.data.feeds import Episodes
from thespis.learners.language.advantage_estimators import AdvantageEstimator, NoBaseline, RewardToGo
from thespis.learners.language.lm_policy_gradient import LMPolicyGradient
from thespis.learners.language.policy_losses import FixedLength, LossReduction, PolicyGradient, PolicyLoss
from thespis.learners.language.response_critics import TurnAdvantageCritic
from thespis.learners.language.turn_critic import OffPolicyTurnCritic


class ArCHer(LMPolicyGradient):
    """ArCHer: hierarchical RL with an off-policy turn critic and token-level REINFORCE, for multi-turn dialogues."""

    critic: TurnAdvantageCritic | None = OffPolicyTurnCritic()
    """Critic of turns: OffPolicyTurnCritic, which learns off-policy, or one of your own."""
    advantage_estimator: AdvantageEstimator = RewardToGo(NoBaseline(), 0.0)
    """Advantage estimator: RewardToGo or TrajectoryReturn (with a group baseline), TurnGAE or TokenGAE."""
    objective: PolicyLoss = PolicyGradient()
    """Policy loss of the tokens: PolicyGradient, ClippedSurrogate or NegativeAwareLoss."""
    loss_reduction: LossReduction = FixedLength()
    """Average of the token losses: FixedLength, TokenMean or SequenceMean."""
    feed: Episodes = eqx.field(static=True, default=Episodes(group_size=1, num_envs=64))
    """Feed of dialogues: num_envs, max_steps (turns; 0: the environment's). No dialogue is compared with others of its
    group, so that all of them may begin differently (group_size=1)."""

    name: ClassVar[str] = "archer"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("ArCHer: Hierarchical Multi-Turn RL", "Zhou et al.", 2024, "arXiv:2402.19446"),
    )
    details: ClassVar[tuple[str, ...]] = ("twin critics of turns", "replay", "Polyak-averaged target critic")
