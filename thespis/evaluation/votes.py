"""Votes of a judge or critic on the same answers: how many are right, and whether their majority is."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from thespis.core.errors import UserError


def check_num_votes(num_votes: int) -> None:
    """Raise ``UserError`` for fewer than one vote."""
    if num_votes < 1:
        raise UserError(f"num_votes={num_votes}: at least 1")


def count_votes(
    votes: Int[np.ndarray, "*votes"], truth: Any, axis: int
) -> tuple[Int[np.ndarray, "*answers"], Int[np.ndarray, "*answers"]]:
    """Right and wrong votes along an axis; votes are 0 or 1, as is the truth, and any other is none."""
    return (votes == truth).sum(axis=axis), (votes == 1 - truth).sum(axis=axis)


def majority_is_right(
    num_right: Int[np.ndarray, "*answers"], num_wrong: Int[np.ndarray, "*answers"]
) -> Float[np.ndarray, "*answers"]:
    """How far a majority is right: 1 or 0, 1/2 for a tie."""
    return np.where(num_right == num_wrong, 0.5, num_right > num_wrong)
