"""Measures of oversight: verdicts at equal cost, the judgments of each level, and the tokens of a verdict."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from thespis.envs.registry import make_compiled
from thespis.evaluation.oversight_report import OversightReport, report_on_oversight
from thespis.evidence.measures import Measure, once_per_run

NUM_ANSWERS, NUM_VOTES = 1_000, 5


@once_per_run
def oversight_report(run: Any) -> OversightReport:
    """The report on a run's levels: each seed has a thousand answers of its own, judged five times."""
    env = make_compiled(run.config["env"])
    return report_on_oversight(env, run.method, run.states, NUM_ANSWERS, NUM_VOTES, run.config["seeds"])


def oversight_accuracy() -> Measure:
    """Share of answers that are judged rightly, at equal cost.

    One verdict after critiques; the majority of five verdicts where the judge reads the answer alone, and of all
    members of a panel that reads it alone. Five verdicts cost at least as many tokens as one after two critiques.
    """

    def shares(run: Any) -> Float[np.ndarray, " seed"]:
        env: Any = make_compiled(run.config["env"])
        report = oversight_report(run)
        if not env.rules.levels:
            return report.majority_accuracy
        return report.accuracy if env.rules.reads == "critiques" else report.panel_accuracy

    return Measure("accuracy of verdicts at equal cost", shares, bounds=(0.0, 1.0))


def verdict_accuracy() -> Measure:
    """Share of single verdicts that are right."""
    return Measure("accuracy of one verdict", lambda run: oversight_report(run).accuracy, bounds=(0.0, 1.0))


def verdict_error() -> Measure:
    """Share of single verdicts that are wrong."""

    def errors(run: Any) -> Float[np.ndarray, " seed"]:
        return 1.0 - oversight_report(run).accuracy

    return Measure("share of verdicts that are wrong", errors, False, bounds=(0.0, 1.0))


def panel_accuracy() -> Measure:
    """Share of the majorities of all seats' judgments in a conversation that are right: naive voting over levels."""
    return Measure("accuracy of all seats' votes", lambda run: oversight_report(run).panel_accuracy, bounds=(0.0, 1.0))


def level_gain() -> Measure:
    """How much more often the judge is right than the last critic before it; 0 where there is none."""

    def gains(run: Any) -> Float[np.ndarray, " seed"]:
        levels = oversight_report(run).level_accuracy
        return levels[:, -1] - levels[:, -2:][:, 0]

    return Measure("gain of the verdict over the last critique", gains, bounds=(-1.0, 1.0))


def first_gain() -> Measure:
    """How much more often the judge is right than the first critic, which has read no critique; 0 where none is."""

    def gains(run: Any) -> Float[np.ndarray, " seed"]:
        levels = oversight_report(run).level_accuracy
        return levels[:, -1] - levels[:, 0]

    return Measure("gain of the verdict over the first critique", gains, bounds=(-1.0, 1.0))


def verdict_tokens() -> Measure:
    """Tokens that all seats read and write for a verdict."""
    return Measure("tokens of a verdict", lambda run: oversight_report(run).tokens, larger_is_better=False)
