"""Behaviour cloning: maximise the likelihood of the logged actions.

Descends ``-E[log pi(a|s)]`` over a dataset; no critic. Any tree of actions.

Source: Pomerleau, 1989. Continuous actions are modelled by a normal with a free spread.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx

from thespis.core.feeds import Logged
from thespis.core.records import Citation
from thespis.learners.cloning import Cloning


class BC(Cloning):
    """Behaviour cloning from a dataset."""

    feed: Logged = eqx.field(static=True, default=Logged(batch=256))
    """Logged: batch."""

    name: ClassVar[str] = "bc"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("ALVINN: An Autonomous Land Vehicle in a Neural Network", "Pomerleau", 1989, "NIPS 1"),
    )
    details: ClassVar[tuple[str, ...]] = ("likelihood of the logged actions in canonical units",)
