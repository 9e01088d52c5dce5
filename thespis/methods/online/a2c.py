"""Advantage actor-critic: one gradient step on each short rollout.

The actor descends ``-E[log pi(a|s) A]``, the critic regresses on ``A + V``; both in one step of RMSProp.

Source: Mnih et al., 2016 (A3C), in its synchronous form; advantages: Schulman et al., 2016 (trace 1 gives the
paper's returns).
Differs from common code: truncation bootstraps with the true final observation.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import equinox as eqx
from jaxtyping import Array, Key

from thespis.core.feeds import Rollouts
from thespis.core.records import Batch, Citation, Report
from thespis.learners.gradient import Number
from thespis.learners.on_policy import OnPolicy, OnPolicyState


class A2C(OnPolicy):
    """Advantage actor-critic; any tree of actions, with or without memory. The paper's entropy weight is 0.01."""

    learning_rate: Number = 7e-4
    """Step size."""
    trace: Number = 1.0
    """Lambda of the generalised advantage, in [0, 1]."""
    optimiser: Literal["adam", "rmsprop"] = eqx.field(static=True, default="rmsprop")
    """How gradients become steps: adam or rmsprop."""
    feed: Rollouts = eqx.field(static=True, default=Rollouts(length=5, envs=8))
    """Rollouts: length, envs."""

    name: ClassVar[str] = "a2c"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Asynchronous Methods for Deep Reinforcement Learning", "Mnih et al.", 2016, "arXiv:1602.01783"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps with the true final observation",
        "synchronous: one step on all environments' rollouts",
        "RMSProp with epsilon 1e-5, started at 1; global gradient norm clipped",
        "advantages as they are, not standardised",
    )

    def update(self, state: OnPolicyState, batch: Batch, key: Key[Array, ""]) -> tuple[OnPolicyState, Report]:
        """One step on one rollout."""
        verdict = self.assessor().assess(state.network, state.scales, batch)
        state, metrics = self.descend(state, batch, verdict)
        return state, Report(metrics)
