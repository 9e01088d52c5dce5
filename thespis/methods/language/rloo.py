"""REINFORCE leave-one-out: the others that began alike are the baseline, and nothing is clipped or scaled.

Source: Ahmadian et al., 2024; Kool et al., 2019.
"""

from __future__ import annotations

from typing import ClassVar

from thespis.core.records import Citation
from thespis.learners.baselines import Others
from thespis.learners.credit import Credit, Whole
from thespis.learners.speaking import Speaking
from thespis.learners.utterances import Divisor, Gradient, Held, Objective, OverBudget, Reference


class RLOO(Speaking):
    """RLOO for conversations of any number of turns."""

    credit: Credit = Whole(Others())
    """How ids are credited: Whole or ToGo (with a baseline), TurnCritic or TokenCritic."""
    objective: Objective = Gradient()
    """What ids become: Gradient or Clipped."""
    divisor: Divisor = OverBudget()
    """What is averaged: OverBudget, OverTokens or OverAnswers."""
    reference: Reference = Held(0.01)
    """What holds the policy to the model that it began as: Unheld, Held or HeldByK3."""

    name: ClassVar[str] = "rloo"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Back to Basics: Revisiting REINFORCE", "Ahmadian et al.", 2024, "arXiv:2402.14740"),
    )
    details: ClassVar[tuple[str, ...]] = ("a leave-one-out baseline",)
