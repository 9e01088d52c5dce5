"""Proximal policy optimisation: several epochs of gradient steps on one rollout, kept near the acting policy.

The actor descends ``-E[min(rho A, clip(rho, 1 - eps, 1 + eps) A)]`` with ``rho`` the ratio of new to acting
probability and ``A`` the generalised advantage; the critic regresses on ``A + V``. With a GRU, minibatches are
whole sequences, replayed from the memory they began with.

Source: Schulman et al., 2017, eq. 7; advantages: Schulman et al., 2016.
Differs from common code: advantages are standardised over the whole batch (``PerMinibatch`` gives the usual
form); where the batch is no multiple of the minibatch, each epoch leaves out a random remainder.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from thespis.core.feeds import Rollouts
from thespis.core.records import Batch, Citation, Report
from thespis.learners.actor_critic import Evaluated
from thespis.learners.advantages import AdvantageScale, WholeBatch
from thespis.learners.anchors import Anchor, Free
from thespis.learners.gradient import Number, Rate
from thespis.learners.networks import Network
from thespis.learners.on_policy import OnPolicy, OnPolicyState, replay
from thespis.objectives.normalise import mean
from thespis.objectives.policies import kl_k3, ppo_clip


class PPO(OnPolicy):
    """PPO with a clipped ratio; any tree of actions, with or without memory."""

    learning_rate: Rate = 3e-4
    """Step size: a number, Falling or Annealed."""
    trace: Number = 0.95
    """Lambda of the generalised advantage, in [0, 1]."""
    clip: Number = 0.2
    """Largest change of the ratio that still earns."""
    advantages: AdvantageScale = WholeBatch()
    """Standardising of advantages: WholeBatch, PerMinibatch or Unscaled."""
    anchor: Anchor = Free()
    """What else draws the policy: Free, Magnet, Tether or Proximal."""
    epochs: int = eqx.field(static=True, default=10)
    """Passes over each rollout."""
    minibatch: int = eqx.field(static=True, default=64)
    """Transitions per gradient step; with memory, rounded to whole sequences."""
    optimiser: Literal["adam", "rmsprop"] = eqx.field(static=True, default="adam")
    """How gradients become steps: adam or rmsprop."""
    feed: Rollouts = eqx.field(static=True, default=Rollouts(length=256, envs=8))
    """Rollouts: length, envs."""

    name: ClassVar[str] = "ppo"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Proximal Policy Optimization Algorithms", "Schulman et al.", 2017, "arXiv:1707.06347"),
        Citation("Generalized Advantage Estimation", "Schulman et al.", 2016, "arXiv:1506.02438"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps with the true final observation",
        "orthogonal weights: sqrt(2) hidden, 0.01 policy, 1 value",
        "log-probability of the drawn action, not of the clipped one",
        "Adam epsilon 1e-5, global gradient norm clipped",
        "scales of observations and rewards learn after the update, so ratios start at 1",
    )

    def update(self, state: OnPolicyState, batch: Batch, key: Key[Array, ""]) -> tuple[OnPolicyState, Report]:
        """All epochs on one rollout."""
        verdict = self.assessor().assess(state.network, state.scales, batch)
        advantage = self.advantages.whole(verdict.advantage, verdict.alive)
        verdict = eqx.tree_at(lambda v: v.advantage, verdict, advantage)
        loss = functools.partial(self._loss, acting=state.network, index=batch.index)
        state, metrics = self.descend_often(state, batch, verdict, loss, self.epochs, self.minibatch, key)
        return state, Report(metrics)

    def _loss(
        self, network: Network, data: Evaluated, memory: Any, *, acting: Network, index: Int[Array, ""]
    ) -> tuple[Array, dict[str, Array]]:
        now = replay(network, memory, data)
        log_ratio = now.log_prob - data.log_prob
        advantage = self.advantages.part(data.advantage, data.alive)
        actor_loss = mean(ppo_clip(log_ratio, advantage, self.clip), data.alive)
        critic_loss = mean(jnp.square(now.value - data.target), data.alive)
        drawn = self.anchor.pull(now, data, lambda: acting.distributions(memory, data.view, data.first), index)
        loss = actor_loss + drawn + self.value_weight * critic_loss - self.entropy_weight * now.entropy
        return loss, {
            "actor_loss": actor_loss,
            "critic_loss": critic_loss,
            "entropy": now.entropy,
            "kl": mean(kl_k3(log_ratio), data.alive),
            "clipped": mean((jnp.abs(jnp.expm1(log_ratio)) > self.clip).astype("float32"), data.alive),
        }
