r"""SCoRe: a second attempt that betters the first, learnt from one's own mistakes, in two stages.

For the first updates only the last attempt is paid, and the first is held to the model that it began as, so that it
goes on to err as it did; then every attempt is paid :math:`r_i + \alpha (r_i - r_{i-1})`, the progress among it, and
all are held with a small weight. Every attempt is told its own reward, beside those of others to the same question.

Source: Kumar et al., 2024, stages I and II. Not verified: alpha and the weights of KL, which the paper's appendix has.
Differs: the first stage is a number of updates of one run, ``experience.until`` and ``reference.until``; a first
attempt is not told what the second earned, where alpha above 1 would pay it for being wrong. Needs a world that pays
each attempt, such as ``Correction(first=1.0)``.
"""

from __future__ import annotations

from typing import ClassVar

from thespis.core.records import Citation
from thespis.learners.baselines import Others
from thespis.learners.credit import Credit, ToGo
from thespis.learners.experience import Experience, Progress
from thespis.learners.speaking import Speaking
from thespis.learners.utterances import Divisor, Gradient, HeldFirst, Objective, OverBudget, Reference


class SCoRe(Speaking):
    """Self-correction by reinforcement learning."""

    credit: Credit = ToGo(Others(), 0.0)
    """How ids are credited: ToGo or Whole (with a baseline), TurnCritic or TokenCritic."""
    objective: Objective = Gradient()
    """What ids become: Gradient or Clipped."""
    divisor: Divisor = OverBudget()
    """What is averaged: OverBudget, OverTokens or OverAnswers."""
    reference: Reference = HeldFirst()
    """What holds the policy to the model that it began as: HeldFirst, Held, HeldByK3 or Unheld."""
    experience: Experience = Progress()
    """What attempts are paid: Progress, or AsPlayed as the world does."""

    name: ClassVar[str] = "score"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Training Language Models to Self-Correct via RL", "Kumar et al.", 2024, "arXiv:2409.12917"),
    )
    details: ClassVar[tuple[str, ...]] = ("a first stage pins first utterances", "progress is paid in the second")
