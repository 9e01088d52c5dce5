"""Ensemble categorical Q-learning: five C51 networks with targets from the average of their distributions.

Each member acts in episodes of its own and learns from its own share of every batch; the best action in the next state
is that of the averaged distributions. In exploit mode they act together; in sample mode one member acts at a time.

Source: Lindenberg, Nordqvist and Lindahl, 2020, and the authors' code, whose hyperparameters are those of ``c51``.

Differs from it: members share one replay buffer, where there each has its own buffer and its own environment.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx

from thespis.core.feeds import WindowFeed
from thespis.core.records import Citation
from thespis.data.feeds import Replay
from thespis.learners.off_policy.categorical_q import MixtureDistribution, TargetDistribution
from thespis.methods.online.c51 import C51


class EnsembleC51(C51):
    """Ensemble categorical Q-learning: C51 members with targets from their average; one discrete action."""

    target_distribution: TargetDistribution = MixtureDistribution()
    """Distribution that targets are built from: MixtureDistribution (ensemble average) or MemberDistribution (own)."""
    ensemble_size: int = eqx.field(static=True, default=5)
    """Number of networks that learn in parallel; ``feed.batch_size`` is split among them in equal shares."""
    feed: WindowFeed = eqx.field(
        static=True, default=Replay(buffer_size=900_000, batch_size=160, learning_starts=1_000, update_interval=4)
    )
    """Replay buffer: buffer_size, batch_size, learning_starts, update_interval, num_updates, sequence_length
    (n-step)."""

    name: ClassVar[str] = "ensemble-c51"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Distributional Reinforcement Learning with Ensembles", "Lindenberg et al.", 2020, "arXiv:2003.10903"),
        *C51.citations,
    )
