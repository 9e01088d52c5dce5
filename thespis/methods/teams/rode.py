"""RODE: roles as sets of actions that do alike, chosen now and then, and policies that keep to their role's actions.

First, what actions do is learnt: an action has a vector ``z_a`` from which, with what the agent sees and the others do,
the next observation and the reward are foretold. K-means over the vectors then makes roles. Every ``every`` steps each
agent chooses a role ``j`` by ``Q(o, j) = mean_{a in j} z_a' k(o)``, mixed as in QMIX and fitted to
``sum of rewards + gamma max Q'``; in between it acts by ``Q_j(o, a) = z_a' W_j h(o)`` over the role's actions, mixed by
another net and fitted at every step.

Source: Wang et al., 2021, section 3. Differs from their code: random choices keep to the role's actions too; next
actions are the best of those of the role that is held or would be chosen; before roles are made, vectors are those of
the fresh net; chances of random choices fall once; Adam; no role gets actions added by hand; the role's choice has no
memory (the actions' has with ``lower.memory``).
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx

from thespis.core.feeds import Replay
from thespis.core.records import Citation
from thespis.critics.matching import Matched
from thespis.learners.levels import Levels
from thespis.learners.roles import ActionRoles
from thespis.methods.teams.qmix import QMIX


class RODE(Levels):
    """A team that chooses roles, and within a role actions."""

    upper: QMIX = QMIX(utility=Matched())
    """How roles are chosen; its feed is not used."""
    lower: QMIX = QMIX(utility=Matched(), feed=Replay(batch=32, warmup=1_000, every=2, length=9, envs=8))
    """How actions are chosen. Windows (feed.length) are of ``2 every - 1`` steps or more."""
    choices: ActionRoles = ActionRoles()
    """How roles are made."""
    every: int = eqx.field(static=True, default=5)
    """Steps for which a role is held."""

    name: ClassVar[str] = "rode"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("RODE: Learning Roles to Decompose Multi-Agent Tasks", "Wang et al.", 2021, "arXiv:2010.01523"),
        *QMIX.citations,
    )
    details: ClassVar[tuple[str, ...]] = (
        *QMIX.details,
        "roles are clusters of actions by their learnt effects, made once",
        "a role is valued by undiscounted rewards of its period, discounted once",
    )
