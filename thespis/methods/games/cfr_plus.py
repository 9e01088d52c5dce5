"""CFR+: counterfactual regret minimisation whose sums of regrets never fall below 0, with later policies weighing more.

``R(I, a) <- max(R(I, a) + r(I, a), 0)`` after every walk (regret matching+); players learn one after the other; the
policy of iteration ``t`` has weight ``t`` in the mean.

Source: Tammelin, 2014 (delay 0).
Differs from common code: see :mod:`thespis.methods.games.cfr`.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Key

from thespis.core.feeds import Rollouts
from thespis.core.records import Batch, Citation, Report
from thespis.learners.tabular import Alternating, Order, Tables, Tabular


class CFRPlus(Tabular):
    """CFR+, in tables over a small game that is known."""

    order: Order = Alternating()
    """Who learns when: Simultaneous or Alternating."""
    iterations: int = eqx.field(static=True, default=1)
    """Walks through the whole game in each update."""
    feed: Rollouts = eqx.field(static=True, default=Rollouts(length=1, envs=1))
    """Rollouts, of which nothing is used."""

    name: ClassVar[str] = "cfr-plus"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Solving Large Imperfect Information Games Using CFR+", "Tammelin", 2014, "arXiv:1407.5042"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "regret matching+: negative sums of regrets are forgotten",
        "the policy of iteration t weighs t in the mean",
        "play is by the average policy",
        "no experience is used: every update walks through the whole game",
    )

    def update(self, state: Tables, batch: Batch, key: Key[Array, ""]) -> tuple[Tables, Report]:
        """``iterations`` walks through the game; ``batch`` and ``key`` are not looked at."""
        return self.walk(state, self.order, lambda regrets: jnp.maximum(regrets, 0.0), lambda number: number)
