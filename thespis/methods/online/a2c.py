"""Advantage actor-critic: synchronous on-policy policy gradient with one gradient step on each short rollout.

The actor minimizes ``-E[log pi(a|s) A]``, the critic regresses on ``A + V``; both in one step of RMSProp.

Source: Mnih et al., 2016 (A3C), in its synchronous form; advantages: Schulman et al., 2016 (``gae_lambda=1`` gives the
paper's returns).

Differs from common code: truncation bootstraps with the true final observation.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import equinox as eqx
from jaxtyping import Array, Key

from thespis.core.feeds import RolloutFeed
from thespis.core.records import Batch, Citation, Number, Report
from thespis.data.feeds import Rollouts
from thespis.learners.on_policy.method import OnPolicyMethod, OnPolicyState
from thespis.learners.optim.optimizers import LearningRate, OptimizerFactory


class A2C(OnPolicyMethod):
    """Advantage actor-critic: one on-policy gradient step on each short rollout; any action space, optional memory.

    The paper's entropy coefficient is 0.01.
    """

    learning_rate: LearningRate = 7e-4
    """Learning rate."""
    gae_lambda: Number = 1.0
    """Lambda of generalized advantage estimation, in [0, 1]."""
    optimizer: Literal["adam", "rmsprop"] | OptimizerFactory = eqx.field(static=True, default="rmsprop")
    """Optimizer: adam, rmsprop or OptaxOptimizer (any of optax)."""
    feed: RolloutFeed = eqx.field(static=True, default=Rollouts(num_steps=5, num_envs=8))
    """Rollouts: num_steps, num_envs."""

    name: ClassVar[str] = "a2c"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Asynchronous Methods for Deep Reinforcement Learning", "Mnih et al.", 2016, "arXiv:1602.01783"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps with the true final observation",
        "synchronous: one step on all environments' rollouts",
        "RMSProp with epsilon 1e-5, started at 1; global gradient norm clipped",
        "advantages are not normalized",
    )

    def update(self, state: OnPolicyState, batch: Batch, key: Key[Array, ""]) -> tuple[OnPolicyState, Report]:
        """One gradient step on one rollout."""
        rollout = self.rollout_processor().compute_advantages(state.network, state.normalizer_states, batch)
        state, metrics = self.update_full_batch(state, batch, rollout)
        return state, Report(metrics)
