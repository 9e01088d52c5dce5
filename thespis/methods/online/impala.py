"""IMPALA: an actor-critic on rollouts that a slightly older policy collected, corrected by V-trace.

With ``rho`` and ``c`` the truncated ratios of the learning over the acting probability, and targets
``v_t = V_t + rho_t (r_t + gamma V_t' - V_t) + gamma c_t (v_t' - V_t')``, the critic regresses on ``v`` and the actor
descends ``-E[rho_t log pi(a|s) (r_t + gamma v_t' - V_t)]``; both in one step of RMSProp.

Source: Espeholt et al., 2018, equation 1, section 4.2 and appendix.
Differs from common code: truncation bootstraps with the true final observation; losses are means over the rollout,
not sums, so the gradient's bound is not the paper's 40; no annealing of the step size. Rollouts lag behind in the host
loop; the compiled loop acts and learns in turn, and every ratio is 1.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Key

from thespis.core.feeds import Rollouts
from thespis.core.records import Batch, Citation, Report
from thespis.learners.gradient import Number
from thespis.learners.on_policy import OnPolicy, OnPolicyState, replay
from thespis.objectives.normalise import mean
from thespis.objectives.policies import kl_k3
from thespis.objectives.returns import vtrace


class IMPALA(OnPolicy):
    """V-trace actor-critic; any tree of actions, with or without memory. The paper's entropy weight is 0.01."""

    learning_rate: Number = 6e-4
    """Step size."""
    trace: Number = 1.0
    """Lambda of the V-trace targets, in [0, 1]."""
    rho_bar: Number = 1.0
    """Largest weight of a step's own error: it sets which policy is valued, infinity the learning one."""
    c_bar: Number = 1.0
    """Largest weight with which later errors pass through a step, at most ``rho_bar``: it sets the spread."""
    optimiser: Literal["adam", "rmsprop"] = eqx.field(static=True, default="rmsprop")
    """How gradients become steps: adam or rmsprop."""
    feed: Rollouts = eqx.field(static=True, default=Rollouts(length=20, envs=8, lag=1))
    """Rollouts: length, envs, lag."""

    name: ClassVar[str] = "impala"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("IMPALA: Scalable Distributed Deep-RL", "Espeholt et al.", 2018, "arXiv:1802.01561"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps with the true final observation",
        "ratios against the log-probabilities stored while acting; the learner's own by one pass before the step",
        "with memory, rollouts are replayed from the memory they began with, older policies' included",
        "RMSProp with epsilon 1e-5, started at 1; global gradient norm of mean losses clipped",
        "critiques of an episode take all ratios as 1",
    )

    def update(self, state: OnPolicyState, batch: Batch, key: Key[Array, ""]) -> tuple[OnPolicyState, Report]:
        """One step on one rollout."""
        seen = self.assessor().see(state.network, state.scales, batch)
        log_ratio = replay(state.network, batch.memory, seen).log_prob - seen.log_prob
        bounds = self.discount, self.trace, self.rho_bar, self.c_bar
        target, advantage = seen.estimated(
            lambda r, v, after, end, cut, ratio: vtrace(ratio, r, v, after, end, cut, *bounds), log_ratio
        )
        after, metrics = self.descend(state, batch, seen.judged(advantage, target))
        cut = mean((jnp.exp(log_ratio) > self.rho_bar).astype("float32"), seen.alive)
        return after, Report(metrics | {"kl": mean(kl_k3(log_ratio), seen.alive), "cut": cut})
