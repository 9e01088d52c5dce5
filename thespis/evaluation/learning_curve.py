"""Learning curves per training seed: interpolation of gaps, downsampling, IQM and quartile band over seeds."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from thespis.evaluation.statistics import iqm

MIN_QUARTILE_SEEDS = 5
"""With fewer seeds, :func:`quartile_band` spans all of them."""


STEPS_LABEL, UPDATES_LABEL = "environment steps per seed", "updates per seed"


@dataclasses.dataclass(frozen=True)
class LearningCurve:
    """One quantity over a run; ``values`` are NaN where not measured.

    ``steps`` are environment steps per seed, or what ``x_label`` says.
    """

    label: str
    steps: Float[np.ndarray, " point"]
    values: Float[np.ndarray, "seed point"]
    x_label: str = STEPS_LABEL


def in_readable_units(curves: Sequence[LearningCurve]) -> list[LearningCurve]:
    """Curves over seconds as curves over seconds, minutes or hours, by the longest."""
    longest = max((float(curve.steps[-1]) for curve in curves if len(curve.steps)), default=0.0)
    unit, size = ("hours", 3600.0) if longest > 7200 else ("minutes", 60.0) if longest > 180 else ("seconds", 1.0)
    label = f"training time in {unit}, without compilation"
    return [dataclasses.replace(curve, steps=curve.steps / size, x_label=label) for curve in curves]


def downsample(steps: np.ndarray, values: np.ndarray, max_points: int) -> tuple[np.ndarray, np.ndarray]:
    """Average neighbouring points so that at most ``max_points`` are left; NaN counts as missing."""
    if len(steps) <= max_points:
        return steps, values
    edges = np.linspace(0, len(steps), max_points + 1).round().astype(int)
    chunks = [slice(a, b) for a, b in itertools.pairwise(edges)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a chunk in which nothing was measured stays NaN
        averaged = np.stack([np.nanmean(values[:, chunk], axis=1) for chunk in chunks], axis=1)
    return np.array([steps[chunk].mean() for chunk in chunks]), averaged


def interpolate_gaps(steps: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Fill gaps inside a seed's own range by linear interpolation; leave out seeds that were never measured."""
    filled = []
    for row in values:
        finite = np.isfinite(row)
        if finite.any():
            filled.append(np.interp(steps, steps[finite], row[finite], left=np.nan, right=np.nan))
    return np.stack(filled) if filled else np.full((1, len(steps)), np.nan)


def iqm_curve(values: np.ndarray) -> np.ndarray:
    """IQM over seeds at every point; NaN where a seed is missing, so that the line does not jump when one joins."""
    return np.array([iqm(column) if np.isfinite(column).all() else np.nan for column in values.T])


def quartile_band(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper quartile over seeds; minimum and maximum with fewer than :data:`MIN_QUARTILE_SEEDS`."""
    if len(values) < MIN_QUARTILE_SEEDS:
        return values.min(axis=0), values.max(axis=0)
    low, high = np.quantile(values, [0.25, 0.75], axis=0)
    return low, high
