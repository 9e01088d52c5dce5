"""Independent PPO: every agent of a team, or every player of a game, learns by PPO from its own experience.

Each agent treats the others as part of the environment. With shared parameters all agents of a group learn from all of
its experience; in a game of several players that is self-play against the latest policy, with advantages by each
player's own values.

Source: de Witt et al., 2020; Yu et al., 2022 (parameter sharing).

Differs from common code: agents that wait or are no longer alive are masked from losses, entropy and statistics.
"""

from __future__ import annotations

from typing import ClassVar

from thespis.core.records import Citation
from thespis.critics.critic_inputs import CriticInput, LocalObs
from thespis.learners.multi_agent.independent_learners import BaseIndependentLearners
from thespis.learners.multi_agent.parameter_sharing import ParameterSharing, SharedParameters
from thespis.methods.online.ppo import PPO


class IPPO(BaseIndependentLearners):
    """Independent PPO: every agent learns by PPO from its own observations, with a decentralized critic."""

    method: PPO = PPO()
    """Single-agent method with which each agent learns."""
    sharing: ParameterSharing = SharedParameters()
    """Parameter sharing: SharedParameters (one network per group), Independent or PeriodicReset."""
    critic_input: CriticInput = LocalObs()
    """Input of the critic: LocalObs, the agent's own observation."""

    name: ClassVar[str] = "ippo"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Is Independent Learning All You Need in SMAC?", "de Witt et al.", 2020, "arXiv:2011.09533"),
        *PPO.citations,
    )
    details: ClassVar[tuple[str, ...]] = (
        *PPO.details,
        "rewards between two decisions of an agent belong to the first; discounts count decisions",
    )
