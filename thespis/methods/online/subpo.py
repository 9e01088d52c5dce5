r"""Submodular policy optimisation: REINFORCE on whole episodes whose steps are paid marginal gains.

.. math:: \nabla J(\theta) = E \Big[ \sum_i \nabla \log \pi_\theta(a_i | s_i)
          \Big( \sum_{j \ge i} F(s_{j+1} | \tau_{0:j}) - b_i \Big) \Big]

:math:`F` is a monotone submodular function of the places of a way :math:`\tau`, :math:`F(s | \tau)` what one more place
adds: the world pays it (:mod:`thespis.envs.compiled.coverage`). Nothing is discounted, and a horizon ends episodes. The
policy is Markovian in what it sees, time included; ``memory`` makes it depend on all that it saw (SubPO-NM).

Source: Prajapat et al., 2024; read: abstract and released code, from which sizes and the step size (grid coverage) are
taken. Differs from that code: its grids' ``main.py`` weighs an action by the worth of the way so far
(``gains=SoFar``) without a baseline, here the baseline is a state-value critic, as in its code for robots; no entropy
weight that falls as one over the update; gradients clipped nowhere, as there. No natural gradient.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import equinox as eqx
from jaxtyping import Array, Key

from thespis.core.feeds import Episodes
from thespis.core.records import Batch, Citation, Report
from thespis.learners.gains import Gains, ToGo
from thespis.learners.gradient import Number
from thespis.learners.on_policy import OnPolicy, OnPolicyState


class SubPO(OnPolicy):
    """Submodular policy optimisation; any tree of actions, with or without memory."""

    learning_rate: Number = 0.01
    """Step size."""
    discount: Number = 1.0
    """Discount per step, in [0, 1]."""
    trace: Number = 1.0
    """Lambda of the generalised advantage, in [0, 1]; 1 sums all gains that follow."""
    max_gradient_norm: Number = 1e9
    """Global norm to which the gradient is clipped: any."""
    gains: Gains = ToGo()
    """Which gains weigh an action: ToGo, Whole or SoFar."""
    optimiser: Literal["adam", "rmsprop"] = eqx.field(static=True, default="adam")
    """How gradients become steps: adam or rmsprop."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 32))
    """Units of each hidden layer, of actor and critic."""
    feed: Episodes = eqx.field(static=True, default=Episodes(envs=500))
    """Episodes: turns, envs."""

    name: ClassVar[str] = "subpo"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Submodular Reinforcement Learning", "Prajapat et al.", 2024, "arXiv:2307.13372"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "one gradient step on one whole episode of every environment",
        "gains as they are, not standardised",
        "an episode that is cut before its end bootstraps with the true final observation",
    )

    def update(self, state: OnPolicyState, batch: Batch, key: Key[Array, ""]) -> tuple[OnPolicyState, Report]:
        """One step on one episode of every environment."""
        begun = state.network.begin(batch.mask.shape[1])  # with every episode
        batch = eqx.tree_at(
            lambda b: (b.steps.view.alive, b.memory), batch, (batch.mask, begun), is_leaf=lambda x: x is None
        )
        seen = self.assessor().see(state.network, state.scales, batch)
        to_go = self.assessor().ahead(seen)
        verdict = seen.judged(self.gains(seen.reward, to_go, batch.mask), seen.value + to_go)
        state, metrics = self.descend(state, batch, verdict)
        return state, Report(metrics)
