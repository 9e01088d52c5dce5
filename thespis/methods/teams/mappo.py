"""Multi-agent PPO: every agent of a team learns by PPO with a critic that sees more than the agent does.

The actor sees its own observation, in training and after. The critic sees the state where the world shows one, beside
the agent's own observation; else what all agents see, joined, zeros for those that are not there. Where parameters are
shared it is told which agent it judges. With a GRU, the critic's memory starts anew with every rollout.

Source: Yu et al., 2022. Differs from their code: values are not normalised (``rewards=ReturnScale`` scales rewards),
and the loss of values is PPO's own, neither clipped nor Huber's.
"""

from __future__ import annotations

from typing import ClassVar

from thespis.core.records import Citation
from thespis.critics.central import Everyone, Sight
from thespis.learners.crowd import Crowd
from thespis.learners.sharing import Shared, Sharing
from thespis.methods.online.ppo import PPO


class MAPPO(Crowd):
    """PPO for every agent, with central critics."""

    method: PPO = PPO()
    """By what each of them learns."""
    sharing: Sharing = Shared()
    """Parameters: Shared by a group, or Separate."""
    critics: Sight = Everyone()
    """What critics see: Everyone, or Own (which makes it ippo)."""

    name: ClassVar[str] = "mappo"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("The Surprising Effectiveness of PPO in Cooperative Multi-Agent Games", "Yu et al.", 2022,
                 "arXiv:2103.01955"),
        *PPO.citations,
    )  # fmt: skip
    details: ClassVar[tuple[str, ...]] = (
        *PPO.details,
        "critics see the state, or all observations joined, and which agent they judge",
        "what comes to an agent between two of its decisions belongs to the first; discounts count decisions",
    )
