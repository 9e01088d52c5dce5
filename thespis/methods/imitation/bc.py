"""Behavior cloning: supervised imitation that maximizes the likelihood of the logged actions.

Minimizes ``-E[log pi(a|s)]`` over a dataset, without a critic. Any action space.

Source: Pomerleau, 1989. Continuous actions are modeled by a normal distribution with a free standard deviation.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx

from thespis.core.records import Citation
from thespis.data.feeds import LoggedTransitions
from thespis.learners.offline.behavior_cloning import BehaviorCloning


class BC(BehaviorCloning):
    """Behavior cloning: maximizes the likelihood of the logged actions of a dataset."""

    feed: LoggedTransitions = eqx.field(static=True, default=LoggedTransitions(batch_size=256))
    """Logged transitions: batch_size."""

    name: ClassVar[str] = "bc"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("ALVINN: An Autonomous Land Vehicle in a Neural Network", "Pomerleau", 1989, "NIPS 1"),
    )
    details: ClassVar[tuple[str, ...]] = ("likelihood of the logged actions in canonical units",)
