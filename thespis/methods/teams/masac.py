"""Multi-agent SAC: stochastic actors that see their own, each with twin critics that see what all see and do.

The critics of agent ``i`` regress on ``r_i + gamma E_a[min Q_i'(x', a, a_others) - alpha log pi_i(a|o_i')]`` where the
next actions of the others are samples of their present actors; the actor climbs at the stored actions of the others.
The expectation over its own action is one sample for a box, an exact sum for a choice. Each group has a temperature.

Source: the critics of Lowe et al., 2017, with the actors and the entropy of Haarnoja et al., 2018.
"""

from __future__ import annotations

from typing import ClassVar

from thespis.core.records import Citation
from thespis.critics.central import EveryoneAndActions, Sight
from thespis.learners.crowd import Crowd
from thespis.learners.sharing import Shared, Sharing
from thespis.methods.online.sac import SAC


class MASAC(Crowd):
    """SAC for every agent, with critics of all actions."""

    method: SAC = SAC()
    """By what each of them learns."""
    sharing: Sharing = Shared()
    """Parameters: Shared by a group, or Separate."""
    critics: Sight = EveryoneAndActions()
    """What critics see: EveryoneAndActions, Everyone, or Own (which makes it SAC for each)."""

    name: ClassVar[str] = "masac"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Multi-Agent Actor-Critic for Mixed Cooperative-Competitive Environments", "Lowe et al.", 2017,
                 "arXiv:1706.02275"),
        *SAC.citations,
    )  # fmt: skip
    details: ClassVar[tuple[str, ...]] = (
        *SAC.details,
        "critics see what all see and do; next actions of the others are samples",
        "actors climb at the stored actions of the others",
    )
