"""Multi-agent DDPG: deterministic actors that see their own, each with a critic that sees what all see and do.

``Q_i(x, a_1 ... a_N)`` regresses on ``r_i + gamma Q_i'(x', mu_1'(o_1') ... mu_N'(o_N'))`` of the target actors; actor
``i`` climbs its critic at the stored actions of the others and its own present one. Every agent has its own reward, so
agents may be friends or foes; groups may differ in what they see and do.

A choice enters its critic as a one-hot draw, with the gradient of a Gumbel-softmax.

Source: Lowe et al., 2017, eq. 5 and 6. Differs from their code: agents alike share parameters unless
``sharing=Separate``; no penalty on large actions or logits; choices are one-hot where it acts by the relaxed draw.
Not here: ensembles of policies, inferred policies of the others.
"""

from __future__ import annotations

from typing import ClassVar

from thespis.core.records import Citation
from thespis.critics.central import EveryoneAndActions, Sight
from thespis.learners.crowd import Crowd
from thespis.learners.sharing import Shared, Sharing
from thespis.methods.online.ddpg import DDPG


class MADDPG(Crowd):
    """DDPG for every agent, with critics of all actions."""

    method: DDPG = DDPG()
    """By what each of them learns."""
    sharing: Sharing = Shared()
    """Parameters: Shared by a group, or Separate."""
    critics: Sight = EveryoneAndActions()
    """What critics see: EveryoneAndActions, Everyone, or Own (which makes it DDPG for each)."""

    name: ClassVar[str] = "maddpg"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Multi-Agent Actor-Critic for Mixed Cooperative-Competitive Environments", "Lowe et al.", 2017,
                 "arXiv:1706.02275"),
        *DDPG.citations,
    )  # fmt: skip
    details: ClassVar[tuple[str, ...]] = (
        *DDPG.details,
        "critics see what all see and do; next actions of all are those of the target actors",
        "actors climb at the stored actions of the others",
    )
