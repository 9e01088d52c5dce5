"""Detection of critics that diverge: values beyond every return that the observed rewards allow."""

from __future__ import annotations

from typing import Any

import numpy as np

from thespis.evaluation.formatting import format_number

MAX_RATIO = 3.0
"""Values are out of range if their mean exceeds the largest possible return in size by this factor ..."""
MAX_WRONG_SIGN = 0.1
"""... or has the sign that no reward has, at this share of the largest possible return or more."""


def describe_value_range(pairs: dict[str, Any] | None, returns: list[list[float]]) -> str:
    """A sentence for the user if the values of a critic left the range of possible returns; empty otherwise.

    ``pairs``: values and rewards of some episodes (:func:`thespis.evaluation.score.calibration_pairs`), ``None`` for a
    method whose ``judge`` gives no values; ``returns`` of all episodes that were played. Rewards from ``low`` to
    ``high`` allow discounted returns from ``low / (1 - discount)`` to ``high / (1 - discount)``, and 0.
    """
    if pairs is None or not pairs["predicted"] or pairs["discount"] is None:
        return ""
    low, high = (float(bound) for bound in pairs["reward_range"])
    played = np.array([x for row in returns for x in row], np.float64)
    horizon = 1 / (1 - pairs["discount"]) if pairs["discount"] < 1 else 1.0
    lowest = min(low * horizon, played.min(initial=0.0), 0.0)
    highest = max(high * horizon, played.max(initial=0.0), 0.0)
    largest, mean = max(-lowest, highest), float(np.mean(pairs["predicted"]))
    wrong_sign = (highest == 0 and mean > 0) or (lowest == 0 and mean < 0)
    if largest == 0 or not np.isfinite(mean) or abs(mean) <= (MAX_WRONG_SIGN if wrong_sign else MAX_RATIO) * largest:
        return ""
    return (
        f"the critic's values left the range of possible returns: they are {format_number(mean, 3)} on average, and "
        f"rewards from {format_number(low, 3)} to {format_number(high, 3)} allow returns from "
        f"{format_number(lowest, 3)} to {format_number(highest, 3)} at a discount of {pairs['discount']:g}; the critic "
        "diverges: try a smaller discount or learning_rate, or slower target networks"
    )


class ValueWatch:
    """Watches the values of a run's critic, and warns once."""

    def __init__(self) -> None:
        self._has_warned = False

    def check(self, pairs: dict[str, Any] | None, returns: list[list[float]]) -> str:
        """The warning for the user; empty if there is none, or it was given before."""
        text = "" if self._has_warned else describe_value_range(pairs, returns)
        self._has_warned |= bool(text)
        return text
