"""Weighted sums of the parameters of models of one architecture: model soups and task arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import jax

Model = TypeVar("Model")


def weighted_sum(models: Sequence[Model], weights: Sequence[float]) -> Model:
    """The weighted sum of the parameters of models of equal shapes; a model soup (Wortsman et al. 2022) if the
    weights sum to 1.
    """
    return jax.tree.map(lambda *leaves: sum(w * x for w, x in zip(weights, leaves, strict=True)), *models)
