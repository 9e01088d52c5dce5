"""What a planner's taxes are worth beside schedules that economists know, under which all workers choose best."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from thespis.envs.compiled.economy import Economy, saez
from thespis.envs.registry import compiled
from thespis.evidence.measures import Measure, final_return
from thespis.trained import Run

PROGRESSIVE = (0.1, 0.24, 0.37)
"""Lowest, middle and highest rate of the federal income tax of the United States in 2018."""


def beyond(schedule: str) -> Measure:
    """Welfare with learnt taxes and learnt labour over that of ``no taxes``, ``progressive taxes`` or ``Saez's taxes``.

    A share of the latter: 0.1 is a tenth more. Under the schedules every worker makes the best choice there is.
    """

    def of(run: Run) -> Float[np.ndarray, " seed"]:
        world: Any = compiled(run.config["env"])
        return final_return().of(run) / world.worth(rates_of(schedule, world)) - 1

    return Measure(f"welfare beyond that of {schedule}", of)


def rates_of(schedule: str, economy: Economy) -> Float[np.ndarray, " bracket"]:
    """The rates of a schedule, lowest bracket first."""
    match schedule:
        case "no taxes":
            return np.zeros(len(economy.cuts))
        case "progressive taxes":
            return np.asarray(PROGRESSIVE)
        case _:
            return saez(economy)
