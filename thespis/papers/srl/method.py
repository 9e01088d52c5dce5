"""Sequence reinforcement learning: the actor decides action sequences open-loop, trained with a learned dynamics model.

The critic is that of soft actor-critic, of single actions; after ``(s, a)`` it assumes an actor that observes ``s'``
and continues from ``a``. The actor maximizes ``sum_j Q(s_j, a_j) - alpha log pi(a_j)`` over its own sequence, with
``s_j`` predicted by the model (see :mod:`thespis.papers.srl.temporal_recall`). Acting needs only the actor, which
observes once in ``action_sequence_length`` steps.

Source: Patel and Siegelmann, 2025; read were its abstract, its reviews, and the authors' code of the learner. Their
training script is not public: that the actor also explores by whole sequences is taken from the reviews.

Differs from their code: one batch per update, theirs draws one for critics and one for model and actor; networks are
initialized as those of sac.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.feeds import WindowFeed
from thespis.core.records import Batch, Citation, EnvSpec, Number, Report
from thespis.critics.hypernetwork import ConcatCritic, CriticArchitecture
from thespis.critics.value_functions import QFunction, init_ensemble
from thespis.data.feeds import Replay
from thespis.learners.off_policy.critic_updates import fit_critics, n_step_batch
from thespis.learners.off_policy.soft_actor_critic import ensemble_min
from thespis.learners.optim.normalizers import IDENTITY
from thespis.learners.optim.optimizers import Adam, polyak_update
from thespis.papers.srl.temporal_recall import (
    DynamicsModel,
    SequenceActor,
    SequenceActorCritic,
    TemporalRecall,
    fit_dynamics,
)


class SRLDelayedState(eqx.Module):
    """Part of the training state of SRL that is updated only at every ``policy_delay``-th update."""

    actor: SequenceActor
    opt_state: PyTree
    temperature: PyTree
    entropy: Array


class SRLState(eqx.Module):
    """Training state of SRL: networks, dynamics model, targets, optimizer and normalizer states."""

    delayed: SRLDelayedState
    critics: QFunction
    dynamics: DynamicsModel
    target_networks: tuple[QFunction, DynamicsModel]
    opt_states: tuple[PyTree, PyTree]
    obs_normalizer_state: PyTree
    num_updates: Int[Array, ""]

    @property
    def actor(self) -> SequenceActor:
        """The actor network that chooses action sequences."""
        return self.delayed.actor

    @property
    def temperature(self) -> PyTree:
        """State of the entropy coefficient."""
        return self.delayed.temperature


class SRL(SequenceActorCritic):
    """Sequence reinforcement learning: model-based soft actor-critic whose actor decides action sequences."""

    learning_rate: Number = 3e-4
    """Learning rate of actor, critics and model."""
    tau: Number = 0.005
    """Polyak step size of target critics and target model at each update."""
    use_predicted_states: bool = eqx.field(static=True, default=True)
    """Evaluate each action in the model's predicted state; otherwise in the actor's last observation."""
    policy_delay: int = eqx.field(static=True, default=1)
    """Critic updates per update of actor and temperature."""
    critic: CriticArchitecture = ConcatCritic()
    """Critic architecture: ConcatCritic or HypernetworkCritic."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Units of each hidden layer, of actor and critics; the actor's last layer is recurrent."""
    model_hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(400, 300))
    """Units of each hidden layer of the dynamics model."""
    feed: WindowFeed = eqx.field(static=True, default=Replay(batch_size=256, learning_starts=10_000))
    """Replay buffer: buffer_size, batch_size, learning_starts, num_updates."""

    name: ClassVar[str] = "srl"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Overcoming Slow Decision Frequencies in Continuous Control: Model-Based Sequence Reinforcement "
            "Learning for Model-Free Control",
            "Patel and Siegelmann",
            2025,
            "arXiv:2410.08979",
        ),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not; the model does not predict termination",
        "uniformly random actions until the first update",
        "an action depends on the previous one, including that of an earlier sequence; 0 before the first",
        "the model predicts the next observation itself, not its change; its target copy predicts states for the actor",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> SRLState:
        """Initialize actor, critics and model; critics see what the model predicts, nothing privileged."""
        if self.feed.batch_shape[0] > 1 or self.action_sequence_length < 1:
            raise UserError(
                "srl learns from single steps: set feed.sequence_length=1, and action_sequence_length to 1 or more"
            )
        spec, adam = dataclasses.replace(spec, privileged_space=None), Adam(self.learning_rate)
        actor_key, critic_key, model_key = jax.random.split(key, 3)
        actor, dynamics = (
            SequenceActor(spec, self.hidden_sizes, actor_key),
            DynamicsModel(spec, self.model_hidden_sizes, model_key),
        )
        critics = init_ensemble(lambda k: self.critic.build(spec, self.hidden_sizes, k), 2, critic_key)
        delayed = SRLDelayedState(actor, adam.init(actor), self.temperature.init(spec), jnp.zeros(()))
        opt_states, normalizer_state = (
            (adam.init(critics), adam.init(dynamics)),
            (self.obs_normalizer or IDENTITY).init(spec.observation_space),
        )
        return SRLState(
            delayed, critics, dynamics, (critics, dynamics), opt_states, normalizer_state, jnp.zeros((), "int32")
        )

    def update(self, state: SRLState, batch: Batch, key: Key[Array, ""]) -> tuple[SRLState, Report]:
        """One step of critics, model and targets; at every ``policy_delay``-th update also of actor and temperature."""
        normalizer_state = (self.obs_normalizer or IDENTITY).update(
            state.obs_normalizer_state, batch.steps.view.observation, batch.mask
        )
        data = n_step_batch(batch, self.discount, lambda view: self.normalize_view(normalizer_state, view))
        target_keys, actor_keys = jax.random.split(key, (2, data.reward.shape[0]))
        alpha, adam = self.temperature.alpha(state.temperature), Adam(self.learning_rate)
        next_recall = TemporalRecall(ensemble_min(state.target_networks[0]), state.target_networks[1], alpha, 1)
        next_values = jax.vmap(next_recall.soft_values, (None, 0, 0, 0))(
            state.actor, data.next_view, data.action, target_keys
        )[0]
        target = data.reward + data.discount * next_values[:, 0]
        critics, critic_opt, report = fit_critics(adam, state.critics, state.opt_states[0], data, target)
        dynamics, model_opt, error = fit_dynamics(
            adam, state.dynamics, state.opt_states[1], data.view.observation, data.action, data.next_view.observation
        )
        recall = TemporalRecall(
            ensemble_min(critics),
            state.target_networks[1],
            alpha,
            self.action_sequence_length,
            self.use_predicted_states,
        )
        previous = batch.steps.extras["previous"][0]

        def move(moving: SRLDelayedState) -> SRLDelayedState:
            actor, opt, entropy = recall.actor_step(
                adam, moving.actor, moving.opt_state, data.view, previous, actor_keys
            )
            return SRLDelayedState(actor, opt, self.temperature.update(moving.temperature, entropy), entropy)

        # batch.update_index is the same for all seeds, so under vmap this stays a branch
        delayed = jax.lax.cond(
            (batch.update_index + 1) % self.policy_delay == 0, move, lambda delayed: delayed, state.delayed
        )
        targets = polyak_update(state.target_networks, (critics, dynamics), self.tau)
        opt_states = critic_opt, model_opt
        state = SRLState(delayed, critics, dynamics, targets, opt_states, normalizer_state, state.num_updates + 1)
        return state, report.with_metrics({"entropy": delayed.entropy, "temperature": alpha, "model_error": error})
