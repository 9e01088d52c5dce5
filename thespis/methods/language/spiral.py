"""Self-play of a language model in games of words: it speaks from all seats, and every seat has its own baseline.

A running mean of what a seat has won is taken from what a conversation won, so that a seat that is worth more by the
rules does not teach that whatever it said was right. ``experience.apart=False`` has one mean for all seats. In a world
of one agent it is REINFORCE with a running baseline.

Source: Liu et al., 2025, algorithm 1. Differs: conversations of one update count alike in the mean, and an entropy
bonus may be given, without which self-play goes in circles where the best play is mixed.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx

from thespis.core.feeds import Episodes
from thespis.core.records import Citation
from thespis.learners.baselines import Alone
from thespis.learners.credit import Credit, Whole
from thespis.learners.experience import BySeat, Experience
from thespis.learners.speaking import Speaking
from thespis.learners.utterances import Divisor, Gradient, Objective, OverBudget


class Spiral(Speaking):
    """SPIRAL for games of words."""

    experience: Experience = BySeat()
    """What is taken from what was earned: BySeat, and whatever else is made of conversations."""
    credit: Credit = Whole(Alone())
    """How ids are credited: Whole or ToGo (with a baseline), TurnCritic or TokenCritic."""
    objective: Objective = Gradient()
    """What ids become: Gradient or Clipped."""
    divisor: Divisor = OverBudget()
    """What is averaged: OverBudget, OverTokens or OverAnswers."""
    feed: Episodes = eqx.field(static=True, default=Episodes(envs=64))
    """Conversations: envs, turns (0: the world's)."""

    name: ClassVar[str] = "spiral"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("SPIRAL: Self-Play on Zero-Sum Games", "Liu et al.", 2025, "arXiv:2506.24119"),
    )
    details: ClassVar[tuple[str, ...]] = ("running means of each seat",)
