"""Multi-agent DDPG: deterministic decentralized actors, each with a critic of all observations and actions.

``Q_i(x, a_1 ... a_N)`` regresses on ``r_i + gamma Q_i'(x', mu_1'(o_1') ... mu_N'(o_N'))`` of the target actors; actor
``i`` maximizes its critic at its own current action and the stored actions of the others. Every agent has its own
reward, so agents may cooperate or compete; groups may differ in observations and actions.

A discrete action enters its critic as a one-hot sample, with the gradient of a Gumbel-softmax.

Source: Lowe et al., 2017, eq. 5 and 6.

Differs from their code: agents of a group share parameters unless ``sharing=Independent``; no penalty on large actions
or logits; discrete actions are one-hot, where theirs acts by the relaxed sample. Not implemented: ensembles of
policies, inferred policies of the others.
"""

from __future__ import annotations

from typing import ClassVar

from thespis.core.records import Citation
from thespis.critics.critic_inputs import CriticInput, GlobalStateAction
from thespis.learners.multi_agent.independent_learners import BaseIndependentLearners
from thespis.learners.multi_agent.parameter_sharing import ParameterSharing, SharedParameters
from thespis.methods.online.ddpg import DDPG


class MADDPG(BaseIndependentLearners):
    """Multi-agent DDPG: off-policy deterministic actors with centralized critics of all observations and actions."""

    method: DDPG = DDPG()
    """Single-agent method with which each agent learns."""
    sharing: ParameterSharing = SharedParameters()
    """Parameter sharing: SharedParameters (one network per group), Independent or PeriodicReset."""
    critic_input: CriticInput = GlobalStateAction()
    """Input of the critics: GlobalStateAction, GlobalState, or LocalObs (which makes it DDPG for each agent)."""

    name: ClassVar[str] = "maddpg"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Multi-Agent Actor-Critic for Mixed Cooperative-Competitive Environments",
            "Lowe et al.",
            2017,
            "arXiv:1706.02275",
        ),
        *DDPG.citations,
    )
    details: ClassVar[tuple[str, ...]] = (
        *DDPG.details,
        "critics see all observations and actions; next actions of all agents are those of the target actors",
        "each actor is updated at the stored actions of the others",
    )
