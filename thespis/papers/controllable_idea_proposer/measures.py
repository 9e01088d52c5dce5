"""Measures of ideas: the value of random texts, and a dimension where one control word asks for it."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from thespis.envs.text.writing import TOPICS
from thespis.evidence.measures import Measure, constant
from thespis.evidence.text_aspects import mean_aspect, mean_aspects
from thespis.papers.controllable_idea_proposer.envs import DIMENSIONS, Dimension, Ideas


def dimension(name: Dimension) -> Measure:
    """Mean of one dimension over texts whose control word asks for it."""
    return mean_aspect(name, f"{name} where it is emphasized", Ideas(control=name))


def others(name: Dimension) -> Measure:
    """Mean of the other two dimensions, over texts whose control word asks for one of these two."""
    rest: list[Dimension] = [other for other in DIMENSIONS if other != name]

    def values(run: Any) -> Float[np.ndarray, " seed"]:
        return np.mean([mean_aspects(run, Ideas(control=other))[other] for other in rest], axis=0)

    return Measure(f"{' and '.join(rest)} where they are emphasized", values, bounds=(0.0, 1.0))


def random_value() -> Measure:
    """Value of random texts of right grammar under random emphases: the mean over dimensions, as emphases share it."""
    topic, detail = 1.0 / len(TOPICS), 0.5 * (1.0 + Ideas().max_sentences) / (2.0 * Ideas().max_sentences)
    return constant("value of random texts", (2.0 + topic + detail) / (2.0 * len(DIMENSIONS)), bounds=(0.0, 1.0))
