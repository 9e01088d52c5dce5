"""Proximal policy optimization: on-policy actor-critic with a clipped probability ratio and several epochs per rollout.

The actor minimizes ``-E[min(rho A, clip(rho, 1 - eps, 1 + eps) A)]``, where ``rho`` is the ratio of new to old action
probability and ``A`` the generalized advantage; the critic regresses on ``A + V``. With a recurrent network,
minibatches are whole sequences, replayed from the memory at their first step.

Source: Schulman et al., 2017, eq. 7; advantages: Schulman et al., 2016.

Differs from common code: advantages are normalized over the whole batch (``MinibatchNormalizer`` gives the usual form);
where the batch size is not a multiple of the minibatch size, each epoch leaves out a random remainder.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from thespis.core.feeds import RolloutFeed
from thespis.core.records import Batch, Citation, Number, Report
from thespis.data.feeds import Rollouts
from thespis.learners.on_policy.actor_critic import ActorCriticNetwork, RolloutWithAdvantages
from thespis.learners.on_policy.method import (
    NO_NORMALIZER,
    AdvantageNormalizer,
    BatchNormalizer,
    OnPolicyMethod,
    OnPolicyState,
    evaluate_rollout,
)
from thespis.learners.on_policy.policy_regularizers import NO_REGULARIZER, PolicyRegularizer
from thespis.learners.optim.optimizers import LearningRate, OptimizerFactory
from thespis.objectives.policy_losses import kl_k3, ppo_clip_loss
from thespis.objectives.statistics import masked_mean


class PPO(OnPolicyMethod):
    """Proximal policy optimization: on-policy actor-critic with a clipped ratio; any action space, optional memory."""

    learning_rate: LearningRate = 3e-4
    """Learning rate: a number, InverseSqrtSchedule, LinearSchedule or OptaxSchedule (any of optax)."""
    gae_lambda: Number = 0.95
    """Lambda of generalized advantage estimation, in [0, 1]."""
    clip_range: Number = 0.2
    """Clip range (epsilon): the ratio earns nothing more beyond ``1 - clip_range`` and ``1 + clip_range``."""
    advantage_normalizer: AdvantageNormalizer | None = BatchNormalizer()
    """Normalization of advantages: BatchNormalizer, MinibatchNormalizer or None."""
    policy_regularizer: PolicyRegularizer | None = None
    """KL penalty on the policy: None, MagnetKL, SqrtKL or MirrorDescentKL."""
    num_epochs: int = eqx.field(static=True, default=10)
    """Epochs: passes over each rollout."""
    minibatch_size: int = eqx.field(static=True, default=64)
    """Transitions per gradient step; with memory, rounded to whole sequences."""
    optimizer: Literal["adam", "rmsprop"] | OptimizerFactory = eqx.field(static=True, default="adam")
    """Optimizer: adam, rmsprop or OptaxOptimizer (any of optax)."""
    feed: RolloutFeed = eqx.field(static=True, default=Rollouts(num_steps=256, num_envs=8))
    """Rollouts: num_steps, num_envs."""

    name: ClassVar[str] = "ppo"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Proximal Policy Optimization Algorithms", "Schulman et al.", 2017, "arXiv:1707.06347"),
        Citation("Generalized Advantage Estimation", "Schulman et al.", 2016, "arXiv:1506.02438"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps with the true final observation",
        "orthogonal weights: sqrt(2) hidden, 0.01 policy, 1 value",
        "log-probability of the sampled action, not of the clipped one",
        "Adam epsilon 1e-5, global gradient norm clipped",
        "observation and reward normalizers are updated after the gradient steps, so ratios start at 1",
    )

    def update(self, state: OnPolicyState, batch: Batch, key: Key[Array, ""]) -> tuple[OnPolicyState, Report]:
        """All epochs of minibatch updates on one rollout."""
        processor = self.rollout_processor()
        rollout = processor.compute_advantages(state.network, state.normalizer_states, batch)
        critique = processor.critique(state.normalizer_states, rollout)
        normalized = (self.advantage_normalizer or NO_NORMALIZER).normalize_batch(rollout.advantage, rollout.alive)
        rollout = eqx.tree_at(lambda v: v.advantage, rollout, normalized)
        loss = functools.partial(self._loss, old_network=state.network, index=batch.update_index)
        state, metrics = self.update_minibatches(state, batch, rollout, loss, self.num_epochs, self.minibatch_size, key)
        return state, Report(metrics, critique=critique)

    def _loss(
        self,
        network: ActorCriticNetwork,
        data: RolloutWithAdvantages,
        memory: Any,
        *,
        old_network: ActorCriticNetwork,
        index: Int[Array, ""],
    ) -> tuple[Array, dict[str, Array]]:
        evaluation = evaluate_rollout(network, memory, data)
        log_ratio = evaluation.log_prob - data.log_prob
        advantage = (self.advantage_normalizer or NO_NORMALIZER).normalize_minibatch(data.advantage, data.alive)
        actor_loss = masked_mean(ppo_clip_loss(log_ratio, advantage, self.clip_range), data.alive)
        critic_loss = masked_mean(jnp.square(evaluation.value - data.target), data.alive)
        penalty = (self.policy_regularizer or NO_REGULARIZER).penalty(
            evaluation, data, lambda: old_network.distributions(memory, data.view, data.is_first), index
        )
        loss = actor_loss + penalty + self.vf_coef * critic_loss - self.ent_coef * evaluation.entropy
        return loss, {
            "actor_loss": actor_loss,
            "critic_loss": critic_loss,
            "entropy": evaluation.entropy,
            "kl": masked_mean(kl_k3(log_ratio), data.alive),
            "clipped": masked_mean((jnp.abs(jnp.expm1(log_ratio)) > self.clip_range).astype("float32"), data.alive),
        }
