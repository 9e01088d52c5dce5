"""Curves per training seed, and what of them is drawn: gaps closed, thinned, summed up over seeds."""

from __future__ import annotations

import dataclasses
import itertools
import warnings

import numpy as np
from jaxtyping import Float

from thespis.evaluation.statistics import iqm

FEW = 5
"""Seeds: with fewer, the band spans all of them."""


@dataclasses.dataclass(frozen=True)
class Curve:
    """One quantity over a run: ``step`` in environment steps per seed, NaN in ``values`` where unmeasured."""

    label: str
    step: Float[np.ndarray, " point"]
    values: Float[np.ndarray, "seed point"]


def thin(step: np.ndarray, values: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray]:
    """Average neighbouring points so that at most ``points`` are left; what is NaN counts as missing."""
    if len(step) <= points:
        return step, values
    edges = np.linspace(0, len(step), points + 1).round().astype(int)
    chunks = [slice(a, b) for a, b in itertools.pairwise(edges)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a chunk in which nothing was measured stays NaN
        averaged = np.stack([np.nanmean(values[:, chunk], axis=1) for chunk in chunks], axis=1)
    return np.array([step[chunk].mean() for chunk in chunks]), averaged


def filled(step: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Fill gaps inside a seed's own range in a straight line; leave out seeds that were never measured."""
    filled = []
    for row in values:
        known = np.isfinite(row)
        if known.any():
            filled.append(np.interp(step, step[known], row[known], left=np.nan, right=np.nan))
    return np.stack(filled) if filled else np.full((1, len(step)), np.nan)


def middle(values: np.ndarray) -> np.ndarray:
    """IQM over seeds at every point; NaN where a seed is missing, lest the line jump when one joins."""
    return np.array([iqm(column) if np.isfinite(column).all() else np.nan for column in values.T])


def band(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper edge of the middle half of the seeds; of all of them, if fewer than :data:`FEW`."""
    if len(values) < FEW:
        return values.min(axis=0), values.max(axis=0)
    low, high = np.quantile(values, [0.25, 0.75], axis=0)
    return low, high
