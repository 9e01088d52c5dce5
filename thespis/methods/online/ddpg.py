"""Deep deterministic policy gradient: off-policy actor-critic with a deterministic actor maximizing ``Q(s, mu(s))``.

The critic regresses on ``r + gamma Q_target(s', mu_target(s'))``; both target networks are Polyak averages; exploration
adds noise to the action. Where the action is discrete, ``mu`` is a one-hot sample of the actor, with the gradient of a
Gumbel-softmax (straight-through; Lowe et al., 2017), and there is no exploration noise besides sampling.

Source: Lillicrap et al., 2016. The defaults are those that Fujimoto et al., 2018, found better: one learning rate of
1e-3 and white noise. The paper's: ``actor_learning_rate=1e-4 exploration_noise=0.2 noise_theta=0.15 tau=0.001
feed.batch_size=64``, layers of 400 and 300. Not implemented: its weight decay, batch normalization and small last
layers.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.actors.deterministic import DPGActor, DPGMethod, build_dpg_actor
from thespis.actors.policy_heads import vmap_act
from thespis.core.contracts import Mode
from thespis.core.feeds import WindowFeed
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Number, Report, Transition, View
from thespis.critics.value_functions import (
    QFunction,
    build_q_function,
    critic_observation,
    evaluate_ensemble,
    init_ensemble,
)
from thespis.data.feeds import Replay
from thespis.learners.off_policy.critic_updates import fit_critics, n_step_batch
from thespis.learners.optim.optimizers import (
    LearningRate,
    OptimizerFactory,
    build_optimizer,
    gradient_step,
    polyak_update,
)
from thespis.objectives.statistics import masked_mean


class DDPGState(eqx.Module):
    """Training state of DDPG; the critic's arrays have a leading ensemble axis of size 1."""

    actor: DPGActor
    critic: QFunction
    target_actor: DPGActor
    target_critic: QFunction
    actor_opt_state: PyTree
    critic_opt_state: PyTree
    num_updates: Int[Array, ""]


class DDPG(DPGMethod):
    """Deep deterministic policy gradient: off-policy, deterministic actor; box actions or one discrete action."""

    critic_learning_rate: LearningRate = 1e-3
    """Learning rate of the critic."""
    actor_learning_rate: LearningRate = 1e-3
    """Learning rate of the actor."""
    optimizer: OptimizerFactory | None = None
    """Optimizer: None (Adam) or OptaxOptimizer (any of optax)."""
    discount: Number = 0.99
    """Discount factor per step, in [0, 1]."""
    tau: Number = 0.005
    """Polyak step size of the target networks at each update."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Units of each hidden layer, of actor and critic."""
    feed: WindowFeed = eqx.field(static=True, default=Replay(batch_size=256, learning_starts=1_000))
    """Replay buffer: buffer_size, batch_size, learning_starts, num_updates."""

    name: ClassVar[str] = "ddpg"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Continuous control with deep reinforcement learning", "Lillicrap et al.", 2016, "arXiv:1509.02971"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "uniformly random actions until the first update",
        "the actor maximizes the critic after its update",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> DDPGState:
        """Initialize actor, critic and target networks."""
        actor_key, critic_key = jax.random.split(key)
        actor = build_dpg_actor(spec, self.hidden_sizes, actor_key)
        encoded_spec = dataclasses.replace(spec, action_space=actor.encoded_space)
        critic = init_ensemble(lambda k: build_q_function(encoded_spec, self.hidden_sizes, k), 1, critic_key)
        opt_states = (
            build_optimizer(self.optimizer, self.actor_learning_rate).init(actor),
            build_optimizer(self.optimizer, self.critic_learning_rate).init(critic),
        )
        return DDPGState(actor, critic, actor, critic, *opt_states, jnp.zeros((), "int32"))

    def policy(self, state: DDPGState, mode: Mode) -> Any:
        """The actor, with exploration noise in explore mode."""
        return self.exploration_policy(state.actor, state.num_updates, mode)

    def target_action(self, state: DDPGState, view: View, key: Key[Array, ""]) -> PyTree:
        """Action that targets take in ``view``: that of the target actor."""
        actor = state.target_actor
        return vmap_act(lambda _, view, key: actor.decode_action(actor.sample_encoded(view, key)), (), view, key)

    def judge(self, state: DDPGState, episode: Transition) -> Critique:
        """Q-values of the actions taken, and their advantage over the actor's actions."""

        def evaluate_step(view, privileged, action):
            critic_input = critic_observation(privileged, view.observation)
            actions = jnp.stack([state.actor.encode_action(action), state.actor.greedy_encoded(view)])
            return evaluate_ensemble(state.critic, critic_input, actions)[0]

        values = jax.vmap(evaluate_step)(episode.view, episode.privileged, episode.action)
        return Critique(value=values[:, 0], advantage=values[:, 0] - values[:, 1], discount=self.discount)

    def update(self, state: DDPGState, batch: Batch, key: Key[Array, ""]) -> tuple[DDPGState, Report]:
        """One gradient step of critic and actor, and one Polyak step of the target networks."""
        data = n_step_batch(batch, self.discount)
        data = eqx.tree_at(lambda d: d.action, data, jax.vmap(state.actor.encode_action)(data.action))
        target_keys, actor_keys = jax.random.split(key, (2, data.reward.shape[0]))

        def values(critic, actor, view, seen, keys):
            def single(view, seen, key):
                return evaluate_ensemble(critic, seen, actor.sample_encoded(view, key)[None])[0, 0]

            return jax.vmap(single)(view, seen, keys)

        next_value = values(
            state.target_critic, state.target_actor, data.next_view, data.next_critic_observation, target_keys
        )
        critic, critic_opt, report = fit_critics(
            build_optimizer(self.optimizer, self.critic_learning_rate),
            state.critic,
            state.critic_opt_state,
            data,
            data.reward + data.discount * next_value,
        )

        def actor_loss(actor):
            loss = -masked_mean(values(critic, actor, data.view, data.critic_observation, actor_keys), data.alive)
            return loss, loss

        actor, actor_opt, loss, norm = gradient_step(
            build_optimizer(self.optimizer, self.actor_learning_rate), actor_loss, state.actor, state.actor_opt_state
        )
        state = DDPGState(
            actor,
            critic,
            polyak_update(state.target_actor, actor, self.tau),
            polyak_update(state.target_critic, critic, self.tau),
            actor_opt,
            critic_opt,
            state.num_updates + 1,
        )
        return state, report.with_metrics({"actor_loss": loss, "actor_gradient": norm})
