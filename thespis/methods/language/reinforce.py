"""REINFORCE on whole conversations: every id is told what its turn and all that follow have earned.

Source: Williams, 1992. A baseline is a choice: ``credit.baseline=Others`` compares with those that began alike.
"""

from __future__ import annotations

from typing import ClassVar

from thespis.core.records import Citation
from thespis.learners.baselines import Alone
from thespis.learners.credit import Credit, ToGo
from thespis.learners.speaking import Speaking
from thespis.learners.utterances import Divisor, Gradient, Objective, OverBudget


class REINFORCE(Speaking):
    """REINFORCE for conversations of any number of turns."""

    credit: Credit = ToGo(Alone())
    """How ids are credited: ToGo or Whole (with a baseline), TurnCritic or TokenCritic."""
    objective: Objective = Gradient()
    """What ids become: Gradient or Clipped."""
    divisor: Divisor = OverBudget()
    """What is averaged: OverBudget, OverTokens or OverAnswers."""

    name: ClassVar[str] = "reinforce"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Simple Statistical Gradient-Following Algorithms", "Williams", 1992, "10.1007/BF00992696"),
    )
    details: ClassVar[tuple[str, ...]] = ("rewards to go",)
