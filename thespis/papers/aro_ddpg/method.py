r"""ARO-DDPG: off-policy deterministic policy gradient of the average reward, without a discount.

Twin critics estimate the differential value :math:`\sum_k (r_k - \rho)`, fitted to

.. math:: r - \bar\rho + \min_i \bar Q_i(s', \bar\mu(s'))

where a bar marks target networks. The average reward minimizes the square of :math:`r - \rho - \min_i \bar Q_i(s, a) +
\min_i \bar Q_i(s', \bar\mu(s'))`; the actor maximizes the minimum of the critics. Actor and all target copies are
updated only at every ``policy_delay``-th update.

Source: Saxena et al., 2023, equations 24 to 32 in the version once submitted to ICLR. In the authors' code the average
is learned with the critics instead, by the gradient of ``(Q_i(s, a) + rho - r - ...)²``, has no target copy, and
updates come in bursts of 1,000 (``feed.update_interval=1000 feed.num_updates=1000``); hyperparameters are those of that
code.

Differs: a time limit does not end an episode, which there it does; n-step windows, with the average subtracted at each
step.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.deterministic import DeterministicActor, DPGMethod, NoisyPolicy
from thespis.core.contracts import Mode
from thespis.core.feeds import WindowFeed
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Number, Report, Transition
from thespis.critics.hypernetwork import ConcatCritic, CriticArchitecture
from thespis.critics.value_functions import QFunction, critic_observation, init_ensemble
from thespis.data.feeds import Replay
from thespis.learners.off_policy.critic_updates import NStepBatch, fit_critics, n_step_batch
from thespis.learners.off_policy.soft_actor_critic import ensemble_min
from thespis.learners.optim.optimizers import Adam, gradient_step, polyak_update
from thespis.objectives.statistics import masked_mean


class ARODDPGParams(eqx.Module):
    """Parameters that have a target copy: actor, critics and average reward."""

    actor: DeterministicActor
    critics: QFunction
    average_reward: Float[Array, ""]


class ARODDPGState(eqx.Module):
    """Training state of ARO-DDPG; ``opt_states`` are those of actor, critics and average reward."""

    online: ARODDPGParams
    target: ARODDPGParams
    opt_states: tuple[PyTree, PyTree, PyTree]
    actor_loss: Float[Array, ""]
    num_updates: Int[Array, ""]


class ARODDPG(DPGMethod):
    """ARO-DDPG: off-policy deterministic actor-critic of the average reward, for continuing environments."""

    exploration_noise: Number = 0.2
    """Standard deviation of the noise added at each step, in canonical units: half the width of the bounds."""
    noise_theta: Number = 0.15
    """Decay of the noise per step: 1 for white noise, less for Ornstein-Uhlenbeck noise."""
    learning_rate: Number = 3e-4
    """Learning rate of actor and critics."""
    average_reward_learning_rate: Number = 3e-4
    """Learning rate of the average reward: an update changes it by about this much."""
    tau: Number = 0.005
    """Polyak step size of the target copies."""
    num_critics: int = eqx.field(static=True, default=2)
    """Number of critics in the ensemble; the minimum of their values counts."""
    policy_delay: int = eqx.field(static=True, default=2)
    """Critic updates per update of the actor and the target copies."""
    critic: CriticArchitecture = ConcatCritic()
    """Critic architecture: ConcatCritic or HypernetworkCritic."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(128, 128))
    """Units of each hidden layer, of actor and critics."""
    feed: WindowFeed = eqx.field(
        static=True, default=Replay(buffer_size=100_000, batch_size=256, learning_starts=5_000)
    )
    """Replay buffer: buffer_size, batch_size, learning_starts, num_updates."""

    name: ClassVar[str] = "aro-ddpg"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Off-Policy Average Reward Actor-Critic with Deterministic Policy Search",
            "Saxena et al.",
            2023,
            "arXiv:2305.12239",
        ),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "uniformly random actions until the first update",
        "minimum of the target critics in both targets, of the online critics for the actor",
        "the average reward has its own optimizer and target copy",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> ARODDPGState:
        """Initialize networks and target copies; the average reward starts at 0."""
        keys = jax.random.split(key)
        actor = DeterministicActor(spec, self.hidden_sizes, keys[0])
        critics = init_ensemble(lambda k: self.critic.build(spec, self.hidden_sizes, k), self.num_critics, keys[1])
        online, adam = ARODDPGParams(actor, critics, jnp.zeros(())), Adam(self.learning_rate)
        opt_states = (
            adam.init(actor),
            adam.init(critics),
            Adam(self.average_reward_learning_rate).init(online.average_reward),
        )
        return ARODDPGState(online, online, opt_states, jnp.zeros(()), jnp.zeros((), "int32"))

    def policy(self, state: ARODDPGState, mode: Mode) -> NoisyPolicy:
        """The actor, with exploration noise in explore mode."""
        return self.exploration_policy(state.online.actor, state.num_updates, mode)

    def judge(self, state: ARODDPGState, episode: Transition) -> Critique:
        """Differential values of the actions taken, and their advantage over the actor's actions.

        Values include the average reward that is subtracted at this step; all later steps have it, negative, as their
        ``entropy_bonus``.
        """

        def evaluate_step(o, privileged, action):
            return ensemble_min(state.online.critics)(
                critic_observation(privileged, o), jnp.stack([action, state.online.actor(o)])
            )

        values = jax.vmap(evaluate_step)(episode.view.observation, episode.privileged, episode.action)
        average = jnp.broadcast_to(state.online.average_reward, episode.reward.shape)
        return Critique(values[:, 0] + average, values[:, 0] - values[:, 1], discount=1.0, entropy_bonus=-average)

    def update(self, state: ARODDPGState, batch: Batch, key: Key[Array, ""]) -> tuple[ARODDPGState, Report]:
        """One step of critics and average reward; at every ``policy_delay``-th update also of actor and targets."""
        targets, reward = state.target, lambda b: b.steps.reward
        data = n_step_batch(eqx.tree_at(reward, batch, batch.steps.reward - targets.average_reward), 1.0)
        steps = n_step_batch(eqx.tree_at(reward, batch, jnp.ones_like(batch.steps.reward)), 1.0).reward
        evaluate = jax.vmap(lambda o, a: ensemble_min(targets.critics)(o, a[None])[0])
        next_actions = jax.vmap(targets.actor)(data.next_view.observation)
        target = data.reward + data.discount * evaluate(data.next_critic_observation, next_actions)
        adam = Adam(self.learning_rate)
        critics, critic_opt, report = fit_critics(adam, state.online.critics, state.opt_states[1], data, target)
        rate_estimate = targets.average_reward + (target - evaluate(data.critic_observation, data.action)) / steps
        average, average_opt, _, _ = gradient_step(
            Adam(self.average_reward_learning_rate),
            lambda x: (0.5 * masked_mean(jnp.square(rate_estimate - x), data.alive), ()),
            state.online.average_reward,
            state.opt_states[2],
        )
        online, opt_states = (
            ARODDPGParams(state.online.actor, critics, average),
            (state.opt_states[0], critic_opt, average_opt),
        )
        state = ARODDPGState(online, targets, opt_states, state.actor_loss, state.num_updates + 1)
        # batch.update_index is the same for all seeds, so under vmap this stays a branch and half the work is saved
        due = (batch.update_index + 1) % self.policy_delay == 0
        state = jax.lax.cond(due, lambda s: self._delayed_update(s, data), lambda s: s, state)
        return state, report.with_metrics({"average_reward": average, "actor_loss": state.actor_loss})

    def _delayed_update(self, state: ARODDPGState, data: NStepBatch) -> ARODDPGState:
        def loss(actor):
            value = jax.vmap(
                lambda o, critic_input: ensemble_min(state.online.critics)(critic_input, actor(o)[None])[0]
            )
            loss_value = -masked_mean(value(data.view.observation, data.critic_observation), data.alive)
            return loss_value, loss_value

        actor, opt, loss_value, _ = gradient_step(
            Adam(self.learning_rate), loss, state.online.actor, state.opt_states[0]
        )
        online = ARODDPGParams(actor, state.online.critics, state.online.average_reward)
        target = polyak_update(state.target, online, self.tau)
        return ARODDPGState(online, target, (opt, *state.opt_states[1:]), loss_value, state.num_updates)
