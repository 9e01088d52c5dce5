"""Independent PPO: every agent of a team, or every seat of a game, learns by PPO from its own experience.

The others are part of the world. With shared parameters all agents of a group learn from all of its experience; in a
game of several seats that is self-play against the latest self, with advantages by each seat's own values.

Source: de Witt et al., 2020; Yu et al., 2022 (parameter sharing).
Differs from common code: agents that wait or have gone take no part in losses, entropy or statistics.
"""

from __future__ import annotations

from typing import ClassVar

from thespis.core.records import Citation
from thespis.critics.central import Own, Sight
from thespis.learners.crowd import Crowd
from thespis.learners.sharing import Shared, Sharing
from thespis.methods.online.ppo import PPO


class IPPO(Crowd):
    """PPO for every agent by itself."""

    method: PPO = PPO()
    """By what each of them learns."""
    sharing: Sharing = Shared()
    """Parameters: Shared by a group, or Separate."""
    critics: Sight = Own()
    """What critics see: Own, what the agent sees."""

    name: ClassVar[str] = "ippo"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Is Independent Learning All You Need in SMAC?", "de Witt et al.", 2020, "arXiv:2011.09533"),
        *PPO.citations,
    )
    details: ClassVar[tuple[str, ...]] = (
        *PPO.details,
        "what comes to an agent between two of its decisions belongs to the first; discounts count decisions",
    )
