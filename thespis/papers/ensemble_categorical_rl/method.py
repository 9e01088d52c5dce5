"""Ensemble categorical Q-learning: five C51 networks with targets from the average of their distributions.

Each member acts in environments of its own and learns from what it did there; the best action in the next state is
that of the averaged distributions. In exploit mode they act together; in sample mode each acts in its own environments.

Source: Lindenberg, Nordqvist and Lindahl, 2020, and the authors' code, whose hyperparameters are those of ``c51``.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Key

from thespis.core.errors import UserError
from thespis.core.feeds import WindowFeed
from thespis.core.records import Citation, EnvSpec
from thespis.critics.categorical import CategoricalQ
from thespis.learners.off_policy.categorical_q import MixtureDistribution, TargetDistribution
from thespis.learners.off_policy.discrete_q import MemberExploration
from thespis.methods.online.c51 import C51
from thespis.papers.ensemble_categorical_rl.own_replay import MemberReplay, PerEnvironment


class EnsembleC51(C51):
    """Ensemble categorical Q-learning: C51 members with targets from their average; one discrete action."""

    target_distribution: TargetDistribution = MixtureDistribution()
    """Distribution that targets are built from: MixtureDistribution (ensemble average) or MemberDistribution (own)."""
    ensemble_size: int = eqx.field(static=True, default=5)
    """Number of networks that learn in parallel; ``feed.batch_size`` is split among them in equal shares."""
    exploration: MemberExploration = PerEnvironment()
    """Which member explores: PerEnvironment (the owner of the environment), PerEpisode or PerStep."""
    feed: WindowFeed = eqx.field(
        static=True, default=MemberReplay(buffer_size=900_000, batch_size=160, learning_starts=1_000, update_interval=4)
    )
    """Replay buffer: MemberReplay (a part for each member's own environments) or Replay (shared), with buffer_size,
    batch_size, learning_starts, update_interval, num_updates, sequence_length (n-step)."""

    name: ClassVar[str] = "ensemble-c51"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Distributional Reinforcement Learning with Ensembles", "Lindenberg et al.", 2020, "arXiv:2003.10903"),
        *C51.citations,
    )

    def init_network(self, spec: EnvSpec, key: Key[Array, ""]) -> CategoricalQ:
        """Initialize one ensemble member. Raises ``UserError`` for unsupported settings."""
        if isinstance(self.feed, MemberReplay) and self.feed.num_members != self.ensemble_size:
            raise UserError(
                f"{self.name} of {self.ensemble_size} members with a replay of {self.feed.num_members}: make "
                "ensemble_size and feed.num_members equal (--set)"
            )
        return super().init_network(spec, key)
