"""Measures of optimal-taxation trials: welfare compared with known tax schedules under optimal labour."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from thespis.envs.registry import make_compiled
from thespis.evaluation.run import Run
from thespis.evidence.measures import Measure, final_return
from thespis.papers.ai_economist.envs import Economy, saez_tax_rates

US_TAX_RATES_2018 = (0.1, 0.24, 0.37)
"""Lowest, middle and highest rate of the federal income tax of the United States in 2018."""


def welfare_gain(schedule: str) -> Measure:
    """Relative welfare gain of learned taxes and labour over ``no taxes``, ``progressive taxes`` or ``Saez's taxes``.

    A value of 0.1 means 10% more. Under the schedules every worker chooses optimally.
    """

    def gains(run: Run) -> Float[np.ndarray, " seed"]:
        env: Any = make_compiled(run.config["env"])
        return final_return().compute(run) / env.optimal_welfare(schedule_rates(schedule, env)) - 1

    return Measure(f"welfare beyond that of {schedule}", gains)


def schedule_rates(schedule: str, economy: Economy) -> Float[np.ndarray, " bracket"]:
    """Tax rates of a schedule, lowest bracket first."""
    match schedule:
        case "no taxes":
            return np.zeros(len(economy.bracket_cutoffs))
        case "progressive taxes":
            return np.asarray(US_TAX_RATES_2018)
        case _:
            return saez_tax_rates(economy)
