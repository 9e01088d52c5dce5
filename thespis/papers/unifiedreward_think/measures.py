"""Measures of a judge's most likely verdicts, as those are read where a judge is used."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.envs.registry import make_compiled
from thespis.evaluation.judge_report import JudgeReport, report_on_judge
from thespis.evidence.measures import Measure, once_per_run
from thespis.papers.deepseek_grm_spct.measures import NUM_PAIRS

LOW = 0.05
"""Temperature at which almost always the most likely token is said."""


@once_per_run
def likely_report(run: Any) -> JudgeReport:
    """The report on a run's judge at a low temperature: one verdict on a thousand pairs of each seed's own."""
    env = make_compiled(run.config["env"])
    method = run.method.map_seats(lambda _, seat: dataclasses.replace(seat, temperature=LOW))
    return report_on_judge(env, method, run.states, NUM_PAIRS, 1, run.config["seeds"])


def likely_accuracy() -> Measure:
    """Share of most likely judgments whose verdict is right."""
    return Measure("accuracy of the most likely verdict", lambda run: likely_report(run).accuracy, bounds=(0.0, 1.0))


def likely_consistency() -> Measure:
    """Share of the pairs of which most likely judgments prefer the same answer in both orders."""
    name = "consistency of most likely verdicts in both orders"
    return Measure(name, lambda run: likely_report(run).consistency, bounds=(0.0, 1.0))
