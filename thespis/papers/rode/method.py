"""RODE: hierarchical multi-agent Q-learning with roles, which are clusters of actions with similar effects.

First, action effects are learned: each action has a vector ``z_a`` from which, with the agent's observation and the
others' actions, the next observation and the reward are predicted. K-means over the vectors then defines the roles.
Every ``high_level_interval`` steps each agent chooses a role ``j`` by ``Q(o, j) = mean_{a in j} z_a' k(o)``, mixed as
in QMIX and fitted to ``sum of rewards + gamma max Q'``; in between it acts by ``Q_j(o, a) = z_a' W_j h(o)`` over the
role's actions, mixed by another network and fitted at every step.

Source: Wang et al., 2021, section 3.

Differs from their code: random actions are restricted to the role's actions too; next actions are the best of the role
that is active or would be chosen; before roles are defined, vectors are those of the untrained network; epsilon decays
once; Adam; no role gets actions added by hand; the role policy has no memory (the action policy has with
``low_level.memory``).
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx

from thespis.core.records import Citation
from thespis.critics.role_matching import DotProductUtility
from thespis.data.feeds import Replay
from thespis.learners.multi_agent.hierarchical import Hierarchical
from thespis.methods.multi_agent.qmix import QMIX
from thespis.papers.rode.action_roles import ActionRoles

_SETTINGS: dict[str, Any] = {"learning_rate": 5e-4, "discount": 0.99, "epsilon_decay_updates": 10_000.0}


class RODE(Hierarchical):
    """RODE: hierarchical multi-agent Q-learning that chooses roles, and within a role one of its actions."""

    high_level: QMIX = QMIX(**_SETTINGS, utility_network=DotProductUtility())
    """QMIX over roles; its feed is not used."""
    low_level: QMIX = QMIX(
        **_SETTINGS,
        utility_network=DotProductUtility(),
        feed=Replay(batch_size=32, learning_starts=1_000, update_interval=2, sequence_length=9, num_envs=8),
    )
    """QMIX over actions. feed.sequence_length is at least ``2 * high_level_interval - 1``."""
    high_level_actions: ActionRoles = ActionRoles()
    """Definition of roles by clustering action effects."""
    high_level_interval: int = eqx.field(static=True, default=5)
    """Number of steps for which a role is kept."""

    name: ClassVar[str] = "rode"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("RODE: Learning Roles to Decompose Multi-Agent Tasks", "Wang et al.", 2021, "arXiv:2010.01523"),
        *QMIX.citations,
    )
    details: ClassVar[tuple[str, ...]] = (
        *QMIX.details,
        "roles are clusters of actions by their learned effects, computed once",
        "a role is valued by the undiscounted rewards of its period, discounted once",
    )
