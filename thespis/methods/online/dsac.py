"""Distributional soft actor-critic: the critic is a normal distribution of the soft return instead of its mean.

One critic, of mean ``Q`` and standard deviation ``sigma``, is fitted by maximum likelihood to sampled returns ``y = r +
gamma (Z(s', a') - alpha log pi(a'|s'))``, with ``Z`` sampled from the target critic and ``a'`` from the target actor.
The gradient of ``Q`` is divided by ``sigma**2``: updates are small where returns are uncertain, which mitigates
overestimation without a second critic. The actor maximizes ``Q - alpha log pi``; it, the temperature and all target
networks are updated only at every second update.

Source: Duan et al., 2021, and the authors' code of that year, from which the defaults are.

Differs: constant learning rates (there annealed to 1e-6 by a cosine); ``sigma`` is a floor plus a softplus (there it is
squashed between 0.9 and 55); the actor's mean and standard deviation share all layers (there the last two are
separate); layers are initialized as SAC's; actions are random until the first update; one learner besides the actors
(there several of each, asynchronous).
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.policy_heads import SquashedGaussian
from thespis.actors.stochastic import SoftActor
from thespis.core.feeds import WindowFeed
from thespis.core.records import Batch, Citation, EnvSpec, Number, Report, View
from thespis.critics.value_functions import GaussianReturnQ, critic_observation, critic_spec
from thespis.data.feeds import Replay
from thespis.learners.off_policy.critic_updates import NStepBatch, fit_gaussian_returns, n_step_batch
from thespis.learners.off_policy.soft_actor_critic import ActionEvaluation, SoftActorCritic, actor_step, soft_value
from thespis.learners.off_policy.temperature import Temperature, TunedTemperature
from thespis.learners.optim.normalizers import IDENTITY
from thespis.learners.optim.optimizers import LearningRate, OptimizerFactory, build_optimizer, polyak_update
from thespis.nets.body import NetworkOptions


class DSACState(eqx.Module):
    """Training state of DSAC, with the actor's entropy at its last update."""

    actor: SoftActor
    critic: GaussianReturnQ
    target_actor: SoftActor
    target_critic: GaussianReturnQ
    temperature: PyTree
    actor_opt_state: PyTree
    critic_opt_state: PyTree
    obs_normalizer_state: PyTree
    entropy: Float[Array, ""]
    num_updates: Int[Array, ""]


class DSAC(SoftActorCritic):
    """Distributional SAC: off-policy maximum-entropy actor-critic with a Gaussian critic of returns; box actions."""

    critic_learning_rate: LearningRate = 8e-5
    """Learning rate of the critic."""
    actor_learning_rate: LearningRate = 5e-5
    """Learning rate of the actor."""
    optimizer: OptimizerFactory | None = None
    """Optimizer: None (Adam) or OptaxOptimizer (any of optax)."""
    tau: Number = 0.001
    """Polyak step size of target critic and target actor."""
    temperature: Temperature = TunedTemperature(learning_rate=5e-5)
    """Entropy coefficient: TunedTemperature or FixedTemperature."""
    reward_scale: Number = 0.2
    """Factor of rewards, to suit the task: scaled returns should be far above ``min_std``. Standard deviations and
    ``td_bound`` are in scaled units, critiques in the environment's."""
    td_bound: Number = 10.0
    """Largest distance of a sampled return from the mean that counts for the standard deviation (the paper's ``b``)."""
    min_std: Number = 0.9
    """Floor of the standard deviation."""
    return_noise_clip: Number = 2.0
    """Largest distance of a sampled return from its mean, in standard deviations."""
    policy_delay: int = eqx.field(static=True, default=2)
    """Critic updates per update of actor, temperature and target networks."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(256, 256, 256, 256, 256))
    """Units of each hidden layer, of actor and critic; the critic has its last two twice, for mean and standard
    deviation."""
    feed: WindowFeed = eqx.field(
        static=True, default=Replay(buffer_size=500_000, batch_size=256, learning_starts=2_000)
    )
    """Replay buffer: buffer_size, batch_size, learning_starts, num_updates."""

    name: ClassVar[str] = "dsac"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Distributional Soft Actor-Critic", "Duan et al.", 2021, "arXiv:2001.02811"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "uniformly random actions until the first update",
        "one critic; target returns are samples of the target critic at actions of the target actor",
        "bounded errors in the gradient of the standard deviation, unbounded ones in that of the mean",
        "actor is updated on the critic after its update; delayed actor, temperature and target networks",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> DSACState:
        """Initialize actor, critic, temperature and target networks."""
        actor_key, critic_key = jax.random.split(key)
        critic = GaussianReturnQ(critic_spec(spec), self.hidden_sizes, critic_key, activation=jax.nn.gelu)
        head = SquashedGaussian(log_std_min=-5.0, log_std_max=1.0)
        actor = SoftActor(spec, self.hidden_sizes, actor_key, options=NetworkOptions(jax.nn.gelu), continuous_head=head)
        opt_states = (
            build_optimizer(self.optimizer, self.actor_learning_rate).init(actor),
            build_optimizer(self.optimizer, self.critic_learning_rate).init(critic),
        )
        normalizer_state, temperature = (
            (self.obs_normalizer or IDENTITY).init(spec.observation_space),
            self.temperature.init(spec),
        )
        return DSACState(
            actor,
            critic,
            actor,
            critic,
            temperature,
            *opt_states,
            normalizer_state,
            jnp.zeros(()),
            jnp.zeros((), "int32"),
        )

    def evaluate_action(
        self, state: DSACState, view: View, privileged: PyTree, actions: PyTree, key: Key[Array, ""]
    ) -> ActionEvaluation:
        """Mean return, its advantage over the soft value, no disagreement (a single critic), and entropy bonus."""
        q, _ = state.critic(critic_observation(privileged, view.observation), actions)
        alpha = self.temperature.alpha(state.temperature)
        value, entropy = soft_value(state.actor, lambda o, a: state.critic(o, a)[0], alpha, view, key, privileged)
        return q[0] / self.reward_scale, (q[0] - value) / self.reward_scale, None, alpha * entropy / self.reward_scale

    def update(self, state: DSACState, batch: Batch, key: Key[Array, ""]) -> tuple[DSACState, Report]:
        """One step of the critic; at every ``policy_delay``-th update also of actor, temperature and targets."""
        normalizer_state = (self.obs_normalizer or IDENTITY).update(
            state.obs_normalizer_state, batch.steps.view.observation, batch.mask
        )
        data = n_step_batch(batch, self.discount, lambda view: self.normalize_view(normalizer_state, view))
        keys, noise_keys, actor_keys = jax.random.split(key, (3, data.reward.shape[0]))
        alpha = self.temperature.alpha(state.temperature)

        def next_return(view, key, noise_key, privileged):
            noise = jnp.clip(jax.random.normal(noise_key), -self.return_noise_clip, self.return_noise_clip)

            def sample(o, actions):
                mean, excess = state.target_critic(o, actions)
                return mean + noise * (self.min_std + excess)

            return soft_value(state.target_actor, sample, alpha, view, key, privileged)[0]

        sampled = jax.vmap(next_return)(data.next_view, keys, noise_keys, data.next_privileged)
        critic, critic_opt, metrics = fit_gaussian_returns(
            build_optimizer(self.optimizer, self.critic_learning_rate),
            state.critic,
            state.critic_opt_state,
            data,
            self.reward_scale * data.reward + data.discount * sampled,
            min_std=self.min_std,
            td_bound=self.td_bound,
        )
        state = eqx.tree_at(
            lambda s: (s.critic, s.critic_opt_state, s.obs_normalizer_state, s.num_updates),
            state,
            (critic, critic_opt, normalizer_state, state.num_updates + 1),
        )
        # batch.update_index is the same for all seeds, so under vmap this stays a branch and half the work is saved
        due = (batch.update_index + 1) % self.policy_delay == 0
        state = jax.lax.cond(due, lambda s: self._delayed_update(s, data, alpha, actor_keys), lambda s: s, state)
        metrics |= {name: metrics[name] / self.reward_scale for name in ("value", "deviation")}
        return state, Report(metrics | {"entropy": state.entropy, "temperature": alpha})

    def _delayed_update(self, state: DSACState, data: NStepBatch, alpha: Array, keys: Key[Array, " row"]) -> DSACState:
        optimizer, critic = build_optimizer(self.optimizer, self.actor_learning_rate), state.critic
        actor, opt_state, (_, entropy), _ = actor_step(
            optimizer,
            state.actor,
            state.actor_opt_state,
            lambda o, a: critic(o, a)[0],
            alpha,
            data.view,
            keys,
            data.privileged,
            data.alive,
        )
        updated = (
            actor,
            opt_state,
            self.temperature.update(state.temperature, entropy),
            entropy,
            polyak_update(state.target_actor, actor, self.tau),
            polyak_update(state.target_critic, critic, self.tau),
        )
        return eqx.tree_at(
            lambda s: (s.actor, s.actor_opt_state, s.temperature, s.entropy, s.target_actor, s.target_critic),
            state,
            updated,
        )
