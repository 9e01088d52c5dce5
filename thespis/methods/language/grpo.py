"""Group-relative policy optimisation: several conversations from one beginning are each other's baseline.

Every id is told ``(R - mean R) / std R`` of its group; the loss is the clipped ratio of each id, averaged over the ids
of a conversation and then over conversations, with a penalty on KL to the model that it began as.

Source: Shao et al., 2024, equation 3. The three choices that were criticised since are parts:
``credit.baseline=Mean`` and ``divisor=OverBudget`` give Dr. GRPO (Liu et al., 2025), ``divisor=OverTokens`` with
``objective.high=0.28`` DAPO's loss (Yu et al., 2025). ``credit=ToGo`` tells turns apart.
"""

from __future__ import annotations

from typing import ClassVar

from thespis.core.records import Citation
from thespis.learners.baselines import Scaled
from thespis.learners.credit import Credit, Whole
from thespis.learners.speaking import Speaking
from thespis.learners.utterances import Clipped, Divisor, HeldByK3, Objective, OverAnswers, Reference


class GRPO(Speaking):
    """GRPO for conversations of any number of turns."""

    credit: Credit = Whole(Scaled())
    """How ids are credited: Whole or ToGo (with a baseline), TurnCritic or TokenCritic."""
    objective: Objective = Clipped()
    """What ids become: Clipped or Gradient."""
    divisor: Divisor = OverAnswers()
    """What is averaged: OverAnswers, OverTokens or OverBudget."""
    reference: Reference = HeldByK3(0.04)
    """What holds the policy to the model that it began as: Unheld, Held or HeldByK3."""

    name: ClassVar[str] = "grpo"
    citations: ClassVar[tuple[Citation, ...]] = (Citation("DeepSeekMath", "Shao et al.", 2024, "arXiv:2402.03300"),)
    details: ClassVar[tuple[str, ...]] = ("advantages over the group's deviation (biased)", "KL by k3 (biased)")
