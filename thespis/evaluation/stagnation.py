"""Detection of runs in which nothing was learned: the return is as high at the end as at the beginning."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from thespis.evaluation.formatting import format_number

MIN_ROWS = 12
"""Rows of metrics with a return that a seed needs to be judged."""

_NUM_STANDARD_ERRORS = 3.0  # by which the means of two thirds of a run must differ


def describe_stagnation(metrics: Mapping[str, np.ndarray], env: str | None) -> str:
    """A sentence for the user if the return of no seed moved; empty if that of one did, or there is too little data.

    A seed's return moved if the mean over one third of the run differs from that over another by three standard errors.
    """
    seeds = np.unique(metrics["seed"])
    returns = [metrics["episode_return"][metrics["seed"] == seed] for seed in seeds]
    returns = [values[np.isfinite(values)] for values in returns]
    if not returns or min(map(len, returns)) < MIN_ROWS or any(map(_moves, returns)):
        return ""
    values = np.concatenate(returns)
    if np.ptp(values) <= 1e-6 * max(abs(values[0]), 1.0):
        what = f"every episode returned {format_number(float(values[0]))}, from the first to the last"
        advice = "if rewards are rare, try --feedback rnd or counts"
    else:
        thirds = [
            float(np.mean([np.mean(third) for third in column])) for column in zip(*map(_thirds, returns), strict=True)
        ]
        what = (
            f"the return did not move: {format_number(thirds[0])} at the start, {format_number(thirds[-1])} at the end"
        )
        advice = "try more --steps or another learning_rate"
    check = f"thespis doctor {env.removeprefix('object:')}" if env else "thespis doctor"
    return f"{what}; {advice}, and check the environment: {check}"


def _thirds(values: np.ndarray) -> list[np.ndarray]:
    return np.array_split(values, 3)


def _moves(values: np.ndarray) -> bool:
    """Whether the means over two thirds of a curve differ by more than chance."""
    thirds = _thirds(values)
    means = np.array([third.mean() for third in thirds])
    variances = np.array([third.var(ddof=1) / len(third) for third in thirds])
    tolerance = 1e-6 * max(float(np.abs(values).max()), 1.0)
    pairs = ((0, 1), (0, 2), (1, 2))
    return any(
        abs(means[a] - means[b]) > _NUM_STANDARD_ERRORS * np.sqrt(variances[a] + variances[b]) + tolerance
        for a, b in pairs
    )
