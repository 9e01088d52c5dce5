"""CLAM: PPO with a contrastive model of the other agents, learned from the agent's own observations.

An encoder pools the episode so far into :math:`z_t`, which actor and critic get together with the observation from the
first step on. It is trained by contrast only: an episode has one set of other agents, so two random halves of a window
of steps must be matched against the halves of all other windows (InfoNCE). No gradient of PPO reaches the encoder, and
it needs neither the observations nor the identity of the other agents.

Source: Ma et al., 2024 (TETCI 2025).

Differs: steps, each concatenated with the previous one, are pooled by attention without a transformer before it; the
two views are random halves of a window, where theirs are two different augmentations; not verified: their
hyperparameters and learning rates.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.contracts import Mode
from thespis.core.feeds import RolloutFeed
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Report, Transition, View
from thespis.core.spaces import Box, dict_space
from thespis.methods.online.ppo import PPO
from thespis.papers.clam.attention_pooling import (
    AttentionPooling,
    ContrastiveEncoder,
    ContrastiveEncoderState,
    PoolingState,
)
from thespis.runtime.keys import fold


class CLAMState(eqx.Module):
    """Training state of CLAM: the states of PPO and of the contrastive encoder."""

    method_state: PyTree
    agent_model_state: ContrastiveEncoderState


class CLAMPolicy(eqx.Module):
    """Acting policy of CLAM: PPO's policy and the encoder."""

    actor: PyTree
    encoder: AttentionPooling


class CLAM(eqx.Module):
    """CLAM: PPO that observes a contrastive embedding of the other agents' behavior."""

    method: PPO = PPO()
    """PPO that acts and learns on the augmented observation."""
    agent_model: ContrastiveEncoder = ContrastiveEncoder()
    """Contrastive encoder of the episode so far, a model of the other agents."""

    name: ClassVar[str] = "clam"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Contrastive learning-based agent modeling for deep reinforcement learning",
            "Ma et al.",
            2024,
            "arXiv:2401.00132",
        ),
        *PPO.citations,
    )
    details: ClassVar[tuple[str, ...]] = (*PPO.details, "the encoder is trained by contrast only, after PPO's update")

    @property
    def feed(self) -> RolloutFeed:
        """Feed of the wrapped PPO."""
        return self.method.feed

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> CLAMState:
        """Initialize PPO for the augmented observation space, and the encoder."""
        augmented_space = dict_space(
            others=Box((self.agent_model.embedding_size,), -1.0, 1.0), own=spec.observation_space
        )
        method_state = self.method.init(dataclasses.replace(spec, observation_space=augmented_space), fold(key, "ppo"))
        return CLAMState(method_state, self.agent_model.init(spec.observation_space, fold(key, "contrast")))

    def policy(self, state: CLAMState, mode: Mode) -> CLAMPolicy:
        """PPO's policy and the encoder."""
        return CLAMPolicy(self.method.policy(state.method_state, mode), state.agent_model_state.encoder)

    def init_memory(self, policy: CLAMPolicy, n: int) -> tuple[PoolingState, Any]:
        """Empty pooling state, and PPO's memory."""
        return policy.encoder.init_memory(n), self.method.init_memory(policy.actor, n)

    def act(self, policy: CLAMPolicy, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Act with the wrapped PPO."""
        pooled = jax.vmap(policy.encoder)(memory[0], view.observation)
        action, method_memory, extras = self.method.act(policy.actor, memory[1], _augment_view(view, pooled), key)
        return action, (pooled, method_memory), extras

    def action_probs(self, policy: CLAMPolicy, memory: Any, view: View) -> Float[Array, "row n"]:
        """Action probabilities. Raises ``UserError`` unless an action is one discrete choice."""
        pooled = jax.vmap(policy.encoder)(memory[0], view.observation)
        return self.method.action_probs(policy.actor, memory[1], _augment_view(view, pooled))

    def judge(self, state: CLAMState, episode: Transition) -> Critique:
        """PPO's critique of one episode."""
        rows = jax.tree.map(lambda x: x[:, None], episode)
        augmented = self._augment_steps(
            state.agent_model_state.encoder, state.agent_model_state.encoder.init_memory(1), rows
        )
        return self.method.judge(state.method_state, jax.tree.map(lambda x: x[:, 0], augmented))

    def update(self, state: CLAMState, batch: Batch, key: Key[Array, ""]) -> tuple[CLAMState, Report]:
        """PPO's update on augmented observations, then the encoder's update."""
        encoder, (pooled, method_memory) = state.agent_model_state.encoder, batch.memory
        augmented = Batch(
            self._augment_steps(encoder, pooled, batch.steps), batch.mask, method_memory, batch.update_index
        )
        method_state, report = self.method.update(state.method_state, augmented, fold(key, "ppo"))
        model, metrics = self.agent_model.update(state.agent_model_state, pooled, batch, fold(key, "contrast"))
        return CLAMState(method_state, model), Report({**report.metrics, **metrics})

    def _augment_steps(self, encoder: AttentionPooling, pooled: PoolingState, steps: Transition) -> Transition:
        """Steps whose observations and next observations contain the embedding of the other agents."""
        pooled_after = encoder.unroll(pooled, steps.view.observation, steps.is_first)
        next_pooled = jax.vmap(jax.vmap(encoder))(pooled_after, steps.next_view.observation)
        views = _augment_view(steps.view, pooled_after), _augment_view(steps.next_view, next_pooled)
        return eqx.tree_at(lambda s: (s.view, s.next_view), steps, views)


def _augment_view(view: View, pooled: PoolingState) -> View:
    """View whose observation also contains the embedding of the other agents."""
    observation = {"others": jax.lax.stop_gradient(pooled.mean), "own": view.observation}
    return View(observation, view.action_mask, view.alive, view.game_state)
