"""Ensemble categorical Q-learning: five categorical Q-networks whose targets are made of the average of them all.

Each member acts in episodes of its own and learns from its own share of every batch; the best action in the next
state is that of the averaged distributions. They exploit together; sampled play is that of one member at a time.

Source: Lindenberg, Nordqvist and Lindahl, 2020, and the authors' code, whose sizes are those of ``c51``. Differs from
it: members share one replay, where there each has its own and a world of its own.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx

from thespis.core.feeds import Replay
from thespis.core.records import Citation
from thespis.learners.categorical import Believed, Mixture
from thespis.methods.online.c51 import C51


class EnsembleC51(C51):
    """Ensemble categorical Q-network for one discrete choice."""

    believed: Believed = Mixture()
    """Whose distributions targets are made of: Mixture or Own."""
    members: int = eqx.field(static=True, default=5)
    """Nets that learn in parallel; ``feed.batch`` is dealt to them in equal shares."""
    feed: Replay = eqx.field(static=True, default=Replay(capacity=900_000, batch=160, warmup=1_000, every=4))
    """Replay: capacity, batch, warmup, every, updates, length (n-step)."""

    name: ClassVar[str] = "ensemble-c51"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Distributional Reinforcement Learning with Ensembles", "Lindenberg et al.", 2020, "arXiv:2003.10903"),
        *C51.citations,
    )
