"""Simulated scores of training seeds, for tests of statistics."""

from __future__ import annotations

import numpy as np


def draw_scores(kind: str, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Scores of seeds with a variance of 1: normal, skewed, or of two kinds as where some seeds fail."""
    match kind:
        case "skewed":
            return rng.gamma(4, 0.5, shape)
        case "two kinds":
            return np.where(rng.random(shape) < 0.3, -1.5, 0.6) + 0.3 * rng.normal(size=shape)
    return rng.normal(size=shape)
