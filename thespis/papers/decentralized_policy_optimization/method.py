r"""Decentralized policy optimization: each agent maximizes a surrogate; their sum bounds the joint return from below.

All agents update at once, so their separate improvements may cancel out. For coefficients large enough the joint return
improves by at least the sum of what each agent gains in its surrogate:

.. math:: E[\rho A_i] - \beta_1 E_s\sqrt{KL(\pi_{i,old} \| \pi_i)} - \beta_2 E_s KL(\pi_{i,old} \| \pi_i)

Such coefficients would allow almost no step, so both are adapted: a coefficient is halved after an update with less
than two thirds of its target divergence, and doubled after one with more than one and a half times the target. Agents
share nothing.

Source: Su and Lu, 2022 (their DPO; here that name is left to direct preference optimization). Coefficients, bounds and
targets (that of the root is the root of the other) are those of their code.

Differs from it: the divergence of an update is measured after it, over the whole rollout; coefficients stay within
0.001 and 1000 times their initial values.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.contracts import Mode
from thespis.core.feeds import RolloutFeed
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Number, Report, Transition, View
from thespis.critics.critic_inputs import CriticInput, LocalObs
from thespis.learners.multi_agent.independent_learners import BaseIndependentLearners
from thespis.learners.multi_agent.parameter_sharing import Independent, ParameterSharing
from thespis.learners.on_policy.method import OnPolicyState
from thespis.learners.on_policy.policy_regularizers import SqrtKL, policy_divergence
from thespis.methods.online.ppo import PPO

_NO_CLIP = 1e9


class AdaptiveKLPPOState(eqx.Module):
    """Training state: PPO's state and the coefficients of the root of the KL divergence and of the divergence."""

    method_state: OnPolicyState
    penalty_weights: Float[Array, "2"]


class AdaptiveKLPPO(eqx.Module):
    """PPO without clipping, regularized by two adaptive KL coefficients."""

    method: PPO = PPO(clip_range=_NO_CLIP)
    """PPO that computes the updates; its policy_regularizer is replaced."""
    target_kl: Number = 0.01
    """Target KL divergence of one update, in nats."""
    initial_penalty: SqrtKL = SqrtKL()
    """Initial coefficients; a coefficient of 0 stays 0."""

    name: ClassVar[str] = "decentralized"
    citations: ClassVar[tuple[Citation, ...]] = PPO.citations
    details: ClassVar[tuple[str, ...]] = PPO.details

    @property
    def feed(self) -> RolloutFeed:
        """Feed of the wrapped PPO."""
        return self.method.feed

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> AdaptiveKLPPOState:
        """Initialize PPO and the coefficients."""
        return AdaptiveKLPPOState(self.method.init(spec, key), self._initial_weights())

    def policy(self, state: AdaptiveKLPPOState, mode: Mode) -> PyTree:
        """Policy of the wrapped PPO."""
        return self.method.policy(state.method_state, mode)

    def init_memory(self, policy: PyTree, n: int) -> Any:
        """Memory of the wrapped PPO."""
        return self.method.init_memory(policy, n)

    def act(self, policy: PyTree, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Act with the wrapped PPO."""
        return self.method.act(policy, memory, view, key)

    def action_probs(self, policy: PyTree, memory: Any, view: View) -> Float[Array, "row n"]:
        """Action probabilities. Raises ``UserError`` unless an action is one discrete choice."""
        return self.method.action_probs(policy, memory, view)

    def judge(self, state: AdaptiveKLPPOState, episode: Transition) -> Critique:
        """Critique of the wrapped PPO."""
        return self.method.judge(state.method_state, episode)

    def update(self, state: AdaptiveKLPPOState, batch: Batch, key: Key[Array, ""]) -> tuple[AdaptiveKLPPOState, Report]:
        """One PPO update, then the adaptation of the coefficients to its divergence."""
        regularized_ppo = dataclasses.replace(
            self.method, policy_regularizer=SqrtKL(state.penalty_weights[0], state.penalty_weights[1])
        )
        method_state, report = regularized_ppo.update(state.method_state, batch, key)
        rollout = self.method.rollout_processor().compute_advantages(
            state.method_state.network, state.method_state.normalizer_states, batch
        )
        before, after = (
            s.network.distributions(batch.memory, rollout.view, rollout.is_first)
            for s in (state.method_state, method_state)
        )
        root, divergence = policy_divergence(before, after, rollout)
        weights = self.adapt_weights(state.penalty_weights, jnp.stack([root, divergence]))
        metrics = {
            "divergence": divergence,
            "root_weight": state.penalty_weights[0],
            "divergence_weight": state.penalty_weights[1],
        }
        return AdaptiveKLPPOState(method_state, weights), Report({**report.metrics, **metrics})

    def adapt_weights(self, weights: Float[Array, "2"], divergences: Float[Array, "2"]) -> Float[Array, "2"]:
        """Coefficients after an update with these divergences: the root of the KL divergence and the divergence."""
        target = jnp.stack([jnp.sqrt(jnp.asarray(self.target_kl, "float32")), jnp.asarray(self.target_kl, "float32")])
        weights = jnp.where(
            divergences < target / 1.5, weights / 2.0, jnp.where(divergences > target * 1.5, weights * 2.0, weights)
        )
        return jnp.clip(weights, 1e-3 * self._initial_weights(), 1e3 * self._initial_weights())

    def _initial_weights(self) -> Float[Array, "2"]:
        return jnp.stack(
            [jnp.asarray(w, "float32") for w in (self.initial_penalty.sqrt_kl_coef, self.initial_penalty.kl_coef)]
        )


class DecentralizedPolicyOptimization(BaseIndependentLearners):
    """Decentralized policy optimization: each agent maximizes its own surrogate with adaptive KL penalties."""

    method: AdaptiveKLPPO = AdaptiveKLPPO()
    """Single-agent method with which each agent learns."""
    sharing: ParameterSharing = Independent()
    """Parameter sharing: Independent, SharedParameters (one network per group) or PeriodicReset."""
    critic_input: CriticInput = LocalObs()
    """Input of the critic: LocalObs, the agent's own observation."""

    name: ClassVar[str] = "decentralized"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Decentralized Policy Optimization", "Su and Lu", 2022, "arXiv:2211.03032"),
        *PPO.citations,
    )
    details: ClassVar[tuple[str, ...]] = (
        *PPO.details,
        "ratios are not clipped; two KL coefficients adapt to the divergence of each update",
        "rewards between two decisions of an agent belong to the first; discounts count decisions",
    )
