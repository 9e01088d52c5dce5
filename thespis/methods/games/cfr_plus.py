"""CFR+: counterfactual regret minimization with regrets floored at 0 and linear averaging of policies.

``R(I, a) <- max(R(I, a) + r(I, a), 0)`` after every traversal (regret matching+); players are updated in turn; the
policy of iteration ``t`` has weight ``t`` in the average.

Source: Tammelin, 2014 (delay 0).

Differs from common code: see :mod:`thespis.methods.games.cfr`.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Key

from thespis.core.feeds import RolloutFeed
from thespis.core.records import Batch, Citation, Report
from thespis.data.feeds import Rollouts
from thespis.learners.games.tabular_cfr import AlternatingUpdates, TabularCFR, TabularCFRState, UpdateOrder


class CFRPlus(TabularCFR):
    """CFR+: counterfactual regret minimization with regret matching+ and linear averaging, in tables."""

    update_order: UpdateOrder = AlternatingUpdates()
    """Order of the players' updates: AlternatingUpdates or SimultaneousUpdates."""
    num_iterations: int = eqx.field(static=True, default=1)
    """Traversals of the whole game tree in each update."""
    feed: RolloutFeed = eqx.field(static=True, default=Rollouts(num_steps=1, num_envs=1))
    """Rollouts; their experience is not used."""

    name: ClassVar[str] = "cfr-plus"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Solving Large Imperfect Information Games Using CFR+", "Tammelin", 2014, "arXiv:1407.5042"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "regret matching+: negative cumulative regrets are set to 0",
        "the policy of iteration t has weight t in the average",
        "the average policy acts",
        "no experience is used: every update traverses the whole game",
    )

    def update(self, state: TabularCFRState, batch: Batch, key: Key[Array, ""]) -> tuple[TabularCFRState, Report]:
        """``num_iterations`` traversals of the game; ``batch`` and ``key`` are not used."""
        return self.run_iterations(
            state, self.update_order, lambda regrets: jnp.maximum(regrets, 0.0), lambda number: number
        )
