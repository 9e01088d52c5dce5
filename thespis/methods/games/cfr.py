"""Counterfactual regret minimization (CFR): regret matching at every information set of a small game, in tables.

``R(I, a)`` sums how much more ``a`` would have won than the policy, weighted by the reach probability of ``I`` by
chance and the other players; ``pi(I, a) = max(R(I, a), 0) / sum_b max(R(I, b), 0)``. The average of these policies,
weighted by the player's own reach probability of ``I``, converges to a Nash equilibrium of a two-player zero-sum game.

Source: Zinkevich et al., 2007.

Differs from common code: all nodes are traversed at once, level by level; players are updated simultaneously unless
``update_order=AlternatingUpdates``. No environment step is used: training for ``--steps N`` is N updates.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Key

from thespis.core.feeds import RolloutFeed
from thespis.core.records import Batch, Citation, Report
from thespis.data.feeds import Rollouts
from thespis.learners.games.tabular_cfr import SimultaneousUpdates, TabularCFR, TabularCFRState, UpdateOrder


class CFR(TabularCFR):
    """Counterfactual regret minimization: tabular equilibrium solver for small two-player zero-sum games."""

    update_order: UpdateOrder = SimultaneousUpdates()
    """Order of the players' updates: SimultaneousUpdates or AlternatingUpdates."""
    num_iterations: int = eqx.field(static=True, default=1)
    """Traversals of the whole game tree in each update."""
    feed: RolloutFeed = eqx.field(static=True, default=Rollouts(num_steps=1, num_envs=1))
    """Rollouts; their experience is not used."""

    name: ClassVar[str] = "cfr"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Regret Minimization in Games with Incomplete Information", "Zinkevich et al.", 2007, "NIPS 20"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "policies are averaged with equal weights",
        "the average policy acts",
        "no experience is used: every update traverses the whole game",
    )

    def update(self, state: TabularCFRState, batch: Batch, key: Key[Array, ""]) -> tuple[TabularCFRState, Report]:
        """``num_iterations`` traversals of the game; ``batch`` and ``key`` are not used."""
        return self.run_iterations(state, self.update_order, lambda regrets: regrets, lambda number: 1.0)
