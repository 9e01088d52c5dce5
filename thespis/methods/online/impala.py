"""IMPALA: actor-critic on rollouts of a slightly older policy, corrected by V-trace importance weights.

With ``rho`` and ``c`` the truncated ratios of the learner's to the behavior policy's probability, and targets ``v_t =
V_t + rho_t (r_t + gamma V_t' - V_t) + gamma c_t (v_t' - V_t')``, the critic regresses on ``v`` and the actor minimizes
``-E[rho_t log pi(a|s) (r_t + gamma v_t' - V_t)]``; both in one step of RMSProp.

Source: Espeholt et al., 2018, equation 1, section 4.2 and appendix.

Differs from common code: truncation bootstraps with the true final observation; losses are means over the rollout, not
sums, so the gradient clipping threshold is not the paper's 40; the learning rate is not annealed. Rollouts lag behind
in the host loop; the compiled loop alternates acting and learning, and every ratio is 1.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Key

from thespis.core.feeds import RolloutFeed
from thespis.core.records import Batch, Citation, Number, Report
from thespis.data.feeds import Rollouts
from thespis.learners.on_policy.method import OnPolicyMethod, OnPolicyState, evaluate_rollout
from thespis.learners.optim.optimizers import LearningRate, OptimizerFactory
from thespis.objectives.policy_losses import kl_k3
from thespis.objectives.returns import vtrace
from thespis.objectives.statistics import masked_mean


class IMPALA(OnPolicyMethod):
    """V-trace actor-critic (IMPALA) on slightly off-policy rollouts; any action space, optional memory.

    The paper's entropy coefficient is 0.01.
    """

    learning_rate: LearningRate = 6e-4
    """Learning rate."""
    gae_lambda: Number = 1.0
    """Lambda of the V-trace targets, in [0, 1]."""
    rho_bar: Number = 1.0
    """Truncation of the importance weight of a step's own TD error; infinity evaluates the learner's policy itself."""
    c_bar: Number = 1.0
    """Truncation of the weight that passes later TD errors through a step, at most ``rho_bar``; controls variance."""
    optimizer: Literal["adam", "rmsprop"] | OptimizerFactory = eqx.field(static=True, default="rmsprop")
    """Optimizer: adam, rmsprop or OptaxOptimizer (any of optax)."""
    feed: RolloutFeed = eqx.field(static=True, default=Rollouts(num_steps=20, num_envs=8, policy_lag=1))
    """Rollouts: num_steps, num_envs, policy_lag."""

    name: ClassVar[str] = "impala"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("IMPALA: Scalable Distributed Deep-RL", "Espeholt et al.", 2018, "arXiv:1802.01561"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps with the true final observation",
        "ratios against the log-probabilities stored while acting; the learner's own by one pass before the update",
        "with memory, rollouts are replayed from the memory at their first step, older policies' included",
        "RMSProp with epsilon 1e-5, started at 1; global gradient norm of mean losses clipped",
        "critiques of an episode take all ratios as 1",
    )

    def update(self, state: OnPolicyState, batch: Batch, key: Key[Array, ""]) -> tuple[OnPolicyState, Report]:
        """One gradient step on one rollout."""
        rollout = self.rollout_processor().compute_values(state.network, state.normalizer_states, batch)
        log_ratio = evaluate_rollout(state.network, batch.memory, rollout).log_prob - rollout.log_prob
        vtrace_args = self.discount, self.gae_lambda, self.rho_bar, self.c_bar
        target, advantage = rollout.estimate_advantages(
            lambda r, v, after, end, cut, ratio: vtrace(ratio, r, v, after, end, cut, *vtrace_args), log_ratio
        )
        after, metrics = self.update_full_batch(state, batch, rollout.with_advantages(advantage, target))
        cut = masked_mean((jnp.exp(log_ratio) > self.rho_bar).astype("float32"), rollout.alive)
        return after, Report(metrics | {"kl": masked_mean(kl_k3(log_ratio), rollout.alive), "cut": cut})
