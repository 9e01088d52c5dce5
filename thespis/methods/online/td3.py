"""Twin delayed DDPG: off-policy deterministic policy gradient with three measures against overestimation.

Twin critics regress on ``r + gamma min_i Q_i(s', mu(s') + clip(noise))`` of the target networks: the minimum of two
critics, at a smoothed target action. Actor and target networks are updated only at every ``policy_delay``-th update.

Source: Fujimoto et al., 2018, algorithm 1. Each measure can be switched off: ``num_critics=1``,
``target_policy_noise=0``, ``policy_delay=1``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.actors.deterministic import DeterministicActor, DPGMethod, NoisyPolicy
from thespis.core.contracts import Mode
from thespis.core.feeds import WindowFeed
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Number, Report, Transition
from thespis.critics.hypernetwork import ConcatCritic, CriticArchitecture
from thespis.critics.value_functions import QFunction, critic_observation, evaluate_ensemble, init_ensemble
from thespis.data.feeds import Replay
from thespis.learners.off_policy.actor_regularizers import ActorRegularizer
from thespis.learners.off_policy.critic_updates import NStepBatch, fit_critics, n_step_batch
from thespis.learners.optim.optimizers import (
    LearningRate,
    OptimizerFactory,
    build_optimizer,
    gradient_step,
    polyak_update,
)
from thespis.nets.body import NetworkOptions, ObservationEncoder
from thespis.objectives.statistics import masked_mean


class TD3DelayedState(eqx.Module):
    """Part of the training state of TD3 that is updated only at every ``policy_delay``-th update."""

    actor: DeterministicActor
    target_actor: DeterministicActor
    target_critics: QFunction
    actor_opt_state: PyTree
    actor_loss: Array


class TD3State(eqx.Module):
    """Training state of TD3: delayed part, critics and the critics' optimizer state."""

    delayed: TD3DelayedState
    critics: QFunction
    critic_opt_state: PyTree
    num_updates: Int[Array, ""]


class TD3(DPGMethod):
    """Twin delayed DDPG: off-policy deterministic policy gradient, twin critics, smoothed targets; box actions."""

    learning_rate: LearningRate = 3e-4
    """Learning rate of actor and critics."""
    optimizer: OptimizerFactory | None = None
    """Optimizer: None (Adam) or OptaxOptimizer (any of optax)."""
    discount: Number = 0.99
    """Discount factor per step, in [0, 1]."""
    tau: Number = 0.005
    """Polyak step size of the target networks."""
    target_policy_noise: Number = 0.2
    """Standard deviation of the noise on target actions, in canonical units."""
    target_noise_clip: Number = 0.5
    """Bound of the noise on target actions, in canonical units."""
    num_critics: int = eqx.field(static=True, default=2)
    """Number of critics in the ensemble; the minimum of their values counts."""
    policy_delay: int = eqx.field(static=True, default=2)
    """Critic updates per update of the actor and the target networks."""
    actor_regularizer: ActorRegularizer | None = None
    """Loss of the actor beside the critic's value: None or BehaviorCloning (TD3+BC: for data and demonstrations)."""
    critic: CriticArchitecture = ConcatCritic()
    """Critic architecture: ConcatCritic or HypernetworkCritic."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Units of each hidden layer, of actor and critics."""
    activation: Callable[[Array], Array] = eqx.field(static=True, default=jax.nn.relu)
    """Activation of the hidden layers."""
    layer_norm: bool = eqx.field(static=True, default=False)
    """Layer normalization in the hidden layers, before the activation."""
    encoder: ObservationEncoder | None = eqx.field(static=True, default=None)
    """Encoder of each network before the hidden layers: None (images: by size), NatureCNN, MinAtarCNN, ImpalaCNN,
    ResNet or your own module:Class, built with (observation_space, key)."""
    feed: WindowFeed = eqx.field(static=True, default=Replay(batch_size=256, learning_starts=1_000))
    """Replay buffer: buffer_size, batch_size, learning_starts, num_updates."""

    name: ClassVar[str] = "td3"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Addressing Function Approximation Error (TD3)", "Fujimoto et al.", 2018, "arXiv:1802.09477"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "uniformly random actions until the first update",
        "minimum of the target critics; smoothed target actions; delayed actor and target networks",
        "the actor maximizes the first critic",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> TD3State:
        """Initialize actor, critics and target networks."""
        actor_key, critic_key = jax.random.split(key)
        options = NetworkOptions(self.activation, self.encoder, self.layer_norm)
        actor = DeterministicActor(spec, self.hidden_sizes, actor_key, options=options)
        critics = init_ensemble(
            lambda k: self.critic.build(spec, self.hidden_sizes, k, options), self.num_critics, critic_key
        )
        optimizer = build_optimizer(self.optimizer, self.learning_rate)
        delayed = TD3DelayedState(actor, actor, critics, optimizer.init(actor), jnp.zeros(()))
        return TD3State(delayed, critics, optimizer.init(critics), jnp.zeros((), "int32"))

    def policy(self, state: TD3State, mode: Mode) -> NoisyPolicy:
        """The actor, with exploration noise in explore mode."""
        return self.exploration_policy(state.delayed.actor, state.num_updates, mode)

    def judge(self, state: TD3State, episode: Transition) -> Critique:
        """Minimum Q-values of the actions taken, their advantage over the actor's actions, and critic disagreement."""

        def evaluate_step(o, privileged, action):
            critic_input = critic_observation(privileged, o)
            return evaluate_ensemble(state.critics, critic_input, jnp.stack([action, state.delayed.actor(o)]))

        values = jax.vmap(evaluate_step)(episode.view.observation, episode.privileged, episode.action)
        min_values = jnp.min(values, axis=1)
        disagreement = jnp.std(values[:, :, 0], axis=1)
        return Critique(min_values[:, 0], min_values[:, 0] - min_values[:, 1], disagreement, discount=self.discount)

    def update(self, state: TD3State, batch: Batch, key: Key[Array, ""]) -> tuple[TD3State, Report]:
        """One gradient step of the critics; at every ``policy_delay``-th update also of actor and target networks."""
        data = n_step_batch(batch, self.discount)
        keys = jax.random.split(key, data.reward.shape[0])

        def next_value(o, seen, key):
            action = state.delayed.target_actor(o)
            limit = self.target_noise_clip
            noise = jnp.clip(self.target_policy_noise * jax.random.normal(key, action.shape), -limit, limit)
            return jnp.min(
                evaluate_ensemble(state.delayed.target_critics, seen, jnp.clip(action + noise, -1.0, 1.0)[None])
            )

        next_values = jax.vmap(next_value)(data.next_view.observation, data.next_critic_observation, keys)
        target = data.reward + data.discount * next_values
        optimizer = build_optimizer(self.optimizer, self.learning_rate)
        critics, critic_opt, report = fit_critics(optimizer, state.critics, state.critic_opt_state, data, target)
        # batch.update_index is the same for all seeds, so under vmap this stays a branch and half the work is saved
        delayed = jax.lax.cond(
            (batch.update_index + 1) % self.policy_delay == 0,
            lambda delayed: self._delayed_update(delayed, critics, data, batch),
            lambda delayed: delayed,
            state.delayed,
        )
        state = TD3State(delayed, critics, critic_opt, state.num_updates + 1)
        return state, report.with_metrics({"actor_loss": delayed.actor_loss})

    def _delayed_update(
        self, delayed: TD3DelayedState, critics: QFunction, data: NStepBatch, batch: Batch
    ) -> TD3DelayedState:
        first, regularizer = jax.tree.map(lambda x: x[:1], critics), self.actor_regularizer

        def actor_loss(actor):
            if regularizer is None:
                value = jax.vmap(lambda o, critic_input: evaluate_ensemble(first, critic_input, actor(o)[None])[0, 0])
                loss = -masked_mean(value(data.view.observation, data.critic_observation), data.alive)
                return loss, loss
            actions = jax.vmap(actor)(data.view.observation)
            both = jnp.stack([actions, data.action], axis=1)
            values = jax.vmap(lambda o, actions: evaluate_ensemble(first, o, actions)[0])(data.critic_observation, both)
            loss = regularizer.actor_loss(
                values[:, 0], actions, values[:, 1], data.action, data.alive, jnp.asarray(batch.is_from("demos"))
            )
            return loss, loss

        actor, opt, loss, _ = gradient_step(
            build_optimizer(self.optimizer, self.learning_rate), actor_loss, delayed.actor, delayed.actor_opt_state
        )
        target_actor = polyak_update(delayed.target_actor, actor, self.tau)
        return TD3DelayedState(actor, target_actor, polyak_update(delayed.target_critics, critics, self.tau), opt, loss)
