"""Measures of writers for users who react: how often their texts are loved, and how much they help."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from thespis.core.errors import UserError
from thespis.evidence.measures import Measure
from thespis.evidence.text_aspects import mean_aspect, untrained_aspect

NUM_LAST_UPDATES = 10
"""Updates at the end of training whose predictions are averaged."""


def love_rate() -> Measure:
    """The share of sampled texts that users love, in expectation."""
    return mean_aspect("love", "love rate")


def untrained_love_rate() -> Measure:
    """The love rate before reinforcement learning."""
    return untrained_aspect("love", "love rate before training")


def helpfulness() -> Measure:
    """Mean helpfulness of sampled texts."""
    return mean_aspect("helpfulness", "helpfulness")


def missed_love() -> Measure:
    """The share of the largest love rate that sampled texts do not reach; lower is better."""
    return mean_aspect("missed", "share of the possible love that is missed", larger_is_better=False)


def predicted_love_rate() -> Measure:
    """P[Love] of the texts of the last updates: the love rate that reinforcement learning believes in, the proxy."""
    return Measure("predicted love rate", _predicted_love, bounds=(0.0, 1.0))


def overestimated_love() -> Measure:
    """By how much the predicted love rate exceeds the true one; lower is better."""

    def differences(run: Any) -> Float[np.ndarray, " seed"]:
        return _predicted_love(run) - love_rate().compute(run)

    return Measure("predicted minus true love rate", differences, False)


def _predicted_love(run: Any) -> Float[np.ndarray, " seed"]:
    """Mean of the last updates. Raises ``UserError`` for a run without P[Love]."""
    table = run.metrics()
    if "feedback_love_reward" not in table:
        raise UserError(f"{run.path} has no P[Love] among its rewards")
    rows = [table["feedback_love_reward"][table["seed"] == seed][-NUM_LAST_UPDATES:] for seed in run.config["seeds"]]
    return np.mean(np.asarray(rows, np.float64), axis=1)
