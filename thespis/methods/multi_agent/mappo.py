"""Multi-agent PPO: every agent learns by PPO with a centralized critic that sees more than the agent does.

The actor sees its own observation, in training and after. The critic sees the environment's global state, if there is
one, together with the agent's own observation; otherwise the observations of all agents, concatenated, with zeros for
absent agents. With shared parameters it also gets the agent's index. With a recurrent network, the critic's memory
starts anew with every rollout.

Source: Yu et al., 2022.

Differs from their code: values are not normalized (``method.reward_normalizer=ReturnNormalizer`` scales rewards), and
the value loss is PPO's own, neither clipped nor Huber.
"""

from __future__ import annotations

from typing import ClassVar

from thespis.core.records import Citation
from thespis.critics.critic_inputs import CriticInput, GlobalState
from thespis.learners.multi_agent.independent_learners import BaseIndependentLearners
from thespis.learners.multi_agent.parameter_sharing import ParameterSharing, SharedParameters
from thespis.methods.online.ppo import PPO


class MAPPO(BaseIndependentLearners):
    """Multi-agent PPO: every agent learns by PPO, with a centralized critic during training."""

    method: PPO = PPO()
    """Single-agent method with which each agent learns."""
    sharing: ParameterSharing = SharedParameters()
    """Parameter sharing: SharedParameters (one network per group), Independent or PeriodicReset."""
    critic_input: CriticInput = GlobalState()
    """Input of the critic: GlobalState, or LocalObs (which makes it ippo)."""

    name: ClassVar[str] = "mappo"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "The Surprising Effectiveness of PPO in Cooperative Multi-Agent Games",
            "Yu et al.",
            2022,
            "arXiv:2103.01955",
        ),
        *PPO.citations,
    )
    details: ClassVar[tuple[str, ...]] = (
        *PPO.details,
        "critics see the state, or all observations concatenated, and the agent's index",
        "rewards between two decisions of an agent belong to the first; discounts count decisions",
    )
