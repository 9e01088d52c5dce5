"""Counterfactual regret minimisation: play each choice in proportion to how much it is regretted, and average.

``R(I, a)`` sums what ``a`` would have won beyond the policy, weighted by how likely chance and the others lead to
``I``; ``pi(I, a) = max(R(I, a), 0) / sum_b max(R(I, b), 0)``. The mean of these policies, weighted by how likely a
player comes to ``I`` by its own choices, approaches a Nash equilibrium of a zero-sum game for two.

Source: Zinkevich et al., 2007.
Differs from common code: all nodes are walked through at once, level by level; players learn at the same time, unless
they are told to take turns. No step of the world is used: training for ``--steps N`` is N updates.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Key

from thespis.core.feeds import Rollouts
from thespis.core.records import Batch, Citation, Report
from thespis.learners.tabular import Order, Simultaneous, Tables, Tabular


class CFR(Tabular):
    """Counterfactual regret minimisation, in tables over a small game that is known."""

    order: Order = Simultaneous()
    """Who learns when: Simultaneous or Alternating."""
    iterations: int = eqx.field(static=True, default=1)
    """Walks through the whole game in each update."""
    feed: Rollouts = eqx.field(static=True, default=Rollouts(length=1, envs=1))
    """Rollouts, of which nothing is used."""

    name: ClassVar[str] = "cfr"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Regret Minimization in Games with Incomplete Information", "Zinkevich et al.", 2007, "NIPS 20"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "policies are averaged with equal weights",
        "play is by the average policy",
        "no experience is used: every update walks through the whole game",
    )

    def update(self, state: Tables, batch: Batch, key: Key[Array, ""]) -> tuple[Tables, Report]:
        """``iterations`` walks through the game; ``batch`` and ``key`` are not looked at."""
        return self.walk(state, self.order, lambda regrets: regrets, lambda number: 1.0)
