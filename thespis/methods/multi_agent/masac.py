"""Multi-agent SAC: stochastic decentralized actors, each with twin critics of all observations and actions.

The critics of agent ``i`` regress on ``r_i + gamma E_a[min Q_i'(x', a, a_others) - alpha log pi_i(a|o_i')]``, where the
next actions of the others are samples of their current actors; each actor is updated at the stored actions of the
others. The expectation over the agent's own action is one sample for a box, an exact sum for a discrete action. Each
group has its own temperature.

Source: the critics of Lowe et al., 2017, with the actors and the entropy of Haarnoja et al., 2018.
"""

from __future__ import annotations

from typing import ClassVar

from thespis.core.records import Citation
from thespis.critics.critic_inputs import CriticInput, GlobalStateAction
from thespis.learners.multi_agent.independent_learners import BaseIndependentLearners
from thespis.learners.multi_agent.parameter_sharing import ParameterSharing, SharedParameters
from thespis.methods.online.sac import SAC


class MASAC(BaseIndependentLearners):
    """Multi-agent SAC: off-policy maximum-entropy actors with centralized critics of all observations and actions."""

    method: SAC = SAC()
    """Single-agent method with which each agent learns."""
    sharing: ParameterSharing = SharedParameters()
    """Parameter sharing: SharedParameters (one network per group), Independent or PeriodicReset."""
    critic_input: CriticInput = GlobalStateAction()
    """Input of the critics: GlobalStateAction, GlobalState, or LocalObs (which makes it SAC for each agent)."""

    name: ClassVar[str] = "masac"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Multi-Agent Actor-Critic for Mixed Cooperative-Competitive Environments",
            "Lowe et al.",
            2017,
            "arXiv:1706.02275",
        ),
        *SAC.citations,
    )
    details: ClassVar[tuple[str, ...]] = (
        *SAC.details,
        "critics see all observations and actions; next actions of the others are samples",
        "each actor is updated at the stored actions of the others",
    )
