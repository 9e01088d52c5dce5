"""ArCHer: a critic of whole utterances learns off-policy, by temporal differences, and ids from what it says of theirs.

Two levels: turns are steps of a Markov decision process whose values are learnt from replay, so that what is earned at
the end is foretold at the turns before it; within an utterance there is REINFORCE, and all ids are told the same.

Source: Zhou et al., 2024; :mod:`thespis.learners.utterance_critic` says what differs. Differs here: one pass over what
was said.
"""

from __future__ import annotations

from typing import ClassVar

from thespis.core.records import Citation
from thespis.learners.baselines import Alone
from thespis.learners.credit import Credit, ToGo
from thespis.learners.experience import Experience
from thespis.learners.speaking import Speaking
from thespis.learners.utterance_critic import UtteranceCritic
from thespis.learners.utterances import Divisor, Gradient, Objective, OverBudget


class ArCHer(Speaking):
    """ArCHer for conversations of any number of turns."""

    experience: Experience = UtteranceCritic()
    """What turns are paid: UtteranceCritic, by a critic that learns off-policy."""
    credit: Credit = ToGo(Alone(), 0.0)
    """How ids are credited: ToGo or Whole (with a baseline), TurnCritic or TokenCritic."""
    objective: Objective = Gradient()
    """What ids become: Gradient or Clipped."""
    divisor: Divisor = OverBudget()
    """What is averaged: OverBudget, OverTokens or OverAnswers."""

    name: ClassVar[str] = "archer"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("ArCHer: Hierarchical Multi-Turn RL", "Zhou et al.", 2024, "arXiv:2402.19446"),
    )
    details: ClassVar[tuple[str, ...]] = ("twin critics of utterances", "replay", "a slow copy of the critic")
