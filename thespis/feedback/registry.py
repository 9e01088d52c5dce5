"""Feedbacks by name; each is imported only on request."""

from __future__ import annotations

from thespis.core.parts import FEEDBACK, PartRegistry

FEEDBACKS = {
    "environment": "thespis.feedback.environment:EnvironmentReward",
    "rnd": "thespis.feedback.rnd:RandomNetworkDistillation",
    "counts": "thespis.feedback.count_bonus:CountBonus",
}
"""The feedbacks of Thespis."""

REGISTRY = PartRegistry(FEEDBACK, FEEDBACKS, "thespis list feedback")
"""The feedbacks above, and those of installed distributions (entry points ``feedback.NAME`` of ``thespis.parts``)."""
