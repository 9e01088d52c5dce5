"""REValueD: an ensemble of decoupled Q-networks with common targets, whose utilities are held where targets are odd.

Value decomposition spares over-estimation but makes targets vary more; the mean of ten members takes that back. And a
sub-action tried in one part no longer spoils the utilities of good choices in the others.

Source: Ireland and Montana, 2024, and the authors' code, whose sizes are those of ``decqn``. That code has no
regulariser, and the paper could be read in parts only: the form of ``Held`` and its weight follow what is said about
it, not its equation. Differs: plain hidden layers; epsilon falls linearly with updates.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx

from thespis.core.records import Citation
from thespis.learners.decoupled import Expected, Held, Holding, MeanUtilities
from thespis.methods.online.decqn import DecQN


class REValueD(DecQN):
    """Regularised ensemble of decoupled Q-networks, for a vector of choices or a bounded box."""

    believed: Expected = MeanUtilities()
    """What is expected of the next state: MeanUtilities or OwnUtilities."""
    holding: Holding = Held()
    """What keeps utilities where they were: Held or Unheld."""
    members: int = eqx.field(static=True, default=10)
    """Nets that learn in parallel from the same samples."""

    name: ClassVar[str] = "revalued"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("REValueD: Regularised Ensemble Value-Decomposition", "Ireland, Montana", 2024, "arXiv:2401.08850"),
        *DecQN.citations,
    )
