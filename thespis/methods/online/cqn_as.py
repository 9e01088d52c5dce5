"""Coarse-to-fine Q-network that values sequences of actions: those of the next steps, and not of now alone.

Source: Seo and Abbeel, 2025; sizes are those of the authors' code for humanoids. See :mod:`thespis.methods.online.cqn`,
which says what differs.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx

from thespis.core.feeds import Replay
from thespis.core.records import Citation
from thespis.learners.gradient import Number
from thespis.methods.online.cqn import CQN


class CQNAS(CQN):
    """Coarse-to-fine Q-network with action sequences, for one bounded box of actions."""

    learning_rate: Number = 5e-5
    """Step size."""
    noise: Number = 0.01
    """Standard deviation of what is added to actions while it explores, in canonical units."""
    sequence: int = eqx.field(static=True, default=4)
    """Actions that are valued in a row, from now on."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(1024, 1024))
    """Units of each hidden layer; as many are recurrent."""
    feed: Replay = eqx.field(static=True, default=Replay(batch=128, warmup=10_000, every=2, length=4))
    """Replay: capacity, batch, warmup, updates, length (no less than returns and sequence)."""

    name: ClassVar[str] = "cqn-as"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Coarse-to-fine Q-Network with Action Sequence for Data-Efficient Robot Learning",
                 "Seo and Abbeel", 2025, "arXiv:2411.12155"),
        *CQN.citations,
    )  # fmt: skip
