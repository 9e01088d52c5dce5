"""A paper that does not exist, with any trial, for tests of records and pages."""

from __future__ import annotations

from typing import Any

from thespis.core.records import Citation
from thespis.evidence.paper import PairedTrial, Paper, Trial


def made_up_paper(trial: Trial | PairedTrial, **rest: Any) -> Paper:
    """The paper whose miniature is this trial."""
    return Paper(
        id="made-up",
        name="Made up",
        citation=Citation("Made up", "Nobody", 2026, "none"),
        family="tests",
        summary="Does nothing.",
        claim="Nothing.",
        parts=("thespis.methods.online.a2c:A2C",),
        command="thespis train a2c --env CartPole-v1",
        miniature=trial,
        **rest,
    )
