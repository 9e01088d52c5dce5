"""CrossQ: soft actor-critic without target networks, with batch normalization in critics and actor.

The critics see the taken actions ``(s, a)`` and the next ones ``(s', a')``, with ``a'`` from the policy, in one batch,
so that both are normalized by the same statistics. The target ``r + gamma * (min_i Q_i(s', a') - alpha log pi(a'|s'))``
comes from that same pass, without gradient. The actor and the temperature are updated at every third update; their
critics use running statistics.

Source: Bhatt, Palenicek et al., 2024, section 3 and table 1; batch renormalization as in the authors' code.

Differs from the authors' code: critics are 256 units wide by default, where the paper's are 2,048 (set
``critic_hidden_sizes=2048,2048`` where a GPU makes up for it), layers start uniformly in ``1/sqrt(in)``, and the
replay buffer starts after 1,000 steps in place of 5,000.
"""

from __future__ import annotations

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.actors.policy_heads import PolicyHead, SquashedGaussian
from thespis.actors.stochastic import DEFAULT_POLICY_HEAD
from thespis.core.errors import UserError
from thespis.core.feeds import WindowFeed
from thespis.core.records import Batch, Citation, EnvSpec, Report, View
from thespis.core.spaces import Box, Space, random_action
from thespis.critics.value_functions import critic_observation, critic_spec
from thespis.data.feeds import Replay
from thespis.learners.off_policy.critic_updates import NStepBatch, n_step_batch
from thespis.learners.off_policy.soft_actor_critic import ActionEvaluation, QValueFn, SoftActorCritic, soft_value
from thespis.learners.off_policy.temperature import Temperature, TunedTemperature
from thespis.learners.optim.normalizers import IDENTITY
from thespis.learners.optim.optimizers import (
    LearningRate,
    OptaxOptimizer,
    OptimizerFactory,
    build_optimizer,
    gradient_step,
)
from thespis.nets.batch_renorm import BatchRenormMLP, BatchStatistics
from thespis.nets.body import Encoder, flatten
from thespis.nets.mlp import Linear, uniform_fan_in
from thespis.objectives.statistics import masked_mean

Statistics = tuple[BatchStatistics, ...]


class BatchRenormQ(eqx.Module):
    """Q-network ``Q(o, a)`` of a continuous action with batch renormalization."""

    encoder: Encoder
    mlp: BatchRenormMLP
    out: Linear
    space: Space = eqx.field(static=True)

    def __init__(self, spec: EnvSpec, hidden_sizes: tuple[int, ...], key: Key[Array, ""], *, num_warmup_batches: int):
        assert isinstance(spec.action_space, Box)
        encoder_key, mlp_key, out_key = jax.random.split(key, 3)
        self.space = spec.action_space
        self.encoder = Encoder(spec.observation_space, encoder_key)
        width = self.encoder.feature_size + math.prod(spec.action_space.shape)
        self.mlp = BatchRenormMLP(width, hidden_sizes, mlp_key, num_warmup_batches=num_warmup_batches)
        self.out = Linear(hidden_sizes[-1], 1, uniform_fan_in, out_key)

    def __call__(
        self, statistics: Statistics, observation: PyTree, actions: Float[Array, "k *action"]
    ) -> Float[Array, " k"]:
        """Q-values of ``k`` actions for one observation, by running statistics."""
        encoded = self.encoder(observation)
        inputs = jax.vmap(lambda action: jnp.concatenate([encoded, flatten(self.space, action)]))(actions)
        return jax.vmap(lambda x: self.out(self.mlp(statistics, x))[0])(inputs)

    def train(
        self,
        statistics: Statistics,
        observations: PyTree,
        actions: Float[Array, "batch *action"],
        mask: Bool[Array, " batch"] | None,
    ) -> tuple[Float[Array, " batch"], Statistics]:
        """Q-values of a batch by its own statistics, and the running statistics afterwards."""
        encoded = jax.vmap(self.encoder)(observations)
        actions = jax.vmap(lambda action: flatten(self.space, action))(actions)
        features, statistics = self.mlp.train(statistics, jnp.concatenate([encoded, actions], axis=-1), mask)
        return (features @ self.out.weight + self.out.bias)[:, 0], statistics


class BatchRenormActor(eqx.Module):
    """Actor network with batch renormalization and a squashed Gaussian head."""

    encoder: Encoder
    mlp: BatchRenormMLP
    head: PolicyHead

    def __init__(
        self,
        spec: EnvSpec,
        hidden_sizes: tuple[int, ...],
        key: Key[Array, ""],
        *,
        num_warmup_batches: int,
        policy_head: SquashedGaussian,
    ):
        encoder_key, mlp_key, head_key = jax.random.split(key, 3)
        self.encoder = Encoder(spec.observation_space, encoder_key)
        self.mlp = BatchRenormMLP(
            self.encoder.feature_size, hidden_sizes, mlp_key, num_warmup_batches=num_warmup_batches
        )
        self.head = PolicyHead(
            spec.action_space, hidden_sizes[-1], head_key, init=uniform_fan_in, continuous_head=policy_head
        )

    def train(
        self, statistics: Statistics, views: View, mask: Bool[Array, " batch"] | None
    ) -> tuple[PyTree, Statistics]:
        """The distributions in a batch of views by its own statistics, and the running statistics afterwards."""
        features, statistics = self.mlp.train(statistics, jax.vmap(self.encoder)(views.observation), mask)
        return jax.vmap(self.head)(features), statistics


class RunningActor(eqx.Module):
    """An actor network with its running statistics: what acts."""

    network: BatchRenormActor
    statistics: Statistics

    def __call__(self, view: View) -> PyTree:
        """The distribution for one view."""
        network = self.network
        return network.head(network.mlp(self.statistics, network.encoder(view.observation)))

    def initial_action(self, distribution: PyTree, view: View, key: Key[Array, ""]) -> PyTree:
        """A uniform random action: the policy before the first update."""
        return random_action(self.network.head.space, key, view.action_mask)


class CrossQActorState(eqx.Module):
    """What is updated with delay: actor, its optimizer state, temperature, and the last update's metrics."""

    actor: RunningActor
    opt_state: PyTree
    temperature: PyTree
    entropy: Float[Array, ""]
    gradient_norm: Float[Array, ""]


class CrossQState(eqx.Module):
    """Training state of CrossQ: critics with their running statistics, actor, and temperature; no target networks."""

    delayed: CrossQActorState
    critics: BatchRenormQ
    critic_statistics: Statistics
    critic_opt_state: PyTree
    obs_normalizer_state: PyTree
    num_updates: Int[Array, ""]

    @property
    def actor(self) -> RunningActor:
        """The actor with its running statistics."""
        return self.delayed.actor


class CrossQ(SoftActorCritic):
    """CrossQ: SAC with batch normalization in actor and critics and without target networks; box actions."""

    learning_rate: LearningRate = 1e-3
    """Learning rate of actor and critics."""
    optimizer: OptimizerFactory = OptaxOptimizer("adam(b1=0.5)")
    """Optimizer: any of optax; the paper's is Adam with a short memory."""
    temperature: Temperature = TunedTemperature(learning_rate=1e-3)
    """Entropy coefficient: TunedTemperature or FixedTemperature."""
    num_critics: int = eqx.field(static=True, default=2)
    """Number of critics in the ensemble; the minimum of their values counts."""
    policy_delay: int = eqx.field(static=True, default=3)
    """Critic updates per update of actor and temperature."""
    num_warmup_batches: int = eqx.field(static=True, default=100_000)
    """Updates with plain batch normalization, before it is corrected towards the running statistics."""
    policy_head: SquashedGaussian = eqx.field(static=True, default=DEFAULT_POLICY_HEAD)
    """Distribution head of the actor: SquashedGaussian."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Units of each hidden layer of the actor."""
    critic_hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Units of each hidden layer of the critics; the paper's are 2048,2048."""
    feed: WindowFeed = eqx.field(static=True, default=Replay(batch_size=256, learning_starts=1_000))
    """Replay buffer: buffer_size, batch_size, learning_starts, num_updates."""

    name: ClassVar[str] = "crossq"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "CrossQ: Batch Normalization in Deep Reinforcement Learning for Greater Sample Efficiency and Simplicity",
            "Bhatt, Palenicek et al.",
            2024,
            "arXiv:1902.05605",
        ),
        Citation("Batch Renormalization", "Ioffe", 2017, "arXiv:1702.03275"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "uniformly random actions until the first update",
        "current and next actions pass through the critics in one batch and share its statistics",
        "no target networks; the actor's critics and the target's actor use running statistics",
        "actor and temperature are updated at every third update",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> CrossQState:
        """Initialize actor, critics and temperature."""
        if not isinstance(spec.action_space, Box):
            raise UserError(
                f"crossq needs one box of actions, {spec.name} has {spec.action_space}: use sac, dqn or ppo"
            )
        self.policy_head.check_space(spec.action_space)
        actor_key, critic_key = jax.random.split(key)
        warmup = self.num_warmup_batches
        network = BatchRenormActor(
            spec, self.hidden_sizes, actor_key, num_warmup_batches=warmup, policy_head=self.policy_head
        )
        critics = jax.vmap(
            lambda k: BatchRenormQ(critic_spec(spec), self.critic_hidden_sizes, k, num_warmup_batches=warmup)
        )(jax.random.split(critic_key, self.num_critics))
        optimizer = build_optimizer(self.optimizer, self.learning_rate)
        return CrossQState(
            CrossQActorState(
                RunningActor(network, network.mlp.init_statistics()),
                optimizer.init(network),
                self.temperature.init(spec),
                jnp.zeros(()),
                jnp.zeros(()),
            ),
            critics,
            jax.vmap(lambda critic: critic.mlp.init_statistics())(critics),
            optimizer.init(critics),
            (self.obs_normalizer or IDENTITY).init(spec.observation_space),
            jnp.zeros((), "int32"),
        )

    def evaluate_action(
        self, state: CrossQState, view: View, privileged: PyTree, actions: PyTree, key: Key[Array, ""]
    ) -> ActionEvaluation:
        """Minimum Q-value of the ensemble, its advantage over the soft value, critic disagreement, entropy bonus."""
        critic_input = critic_observation(privileged, view.observation)
        q = ensemble_values(state.critics, state.critic_statistics, critic_input, actions)[:, 0]
        alpha = self.temperature.alpha(state.delayed.temperature)
        q_fn = running_minimum(state.critics, state.critic_statistics)
        value, entropy = soft_value(state.actor, q_fn, alpha, view, key, privileged)
        return jnp.min(q), jnp.min(q) - value, jnp.std(q), alpha * entropy

    def update(self, state: CrossQState, batch: Batch, key: Key[Array, ""]) -> tuple[CrossQState, Report]:
        """One gradient step of the critics; at every ``policy_delay``-th update also of actor and temperature."""
        normalizer_state = (self.obs_normalizer or IDENTITY).update(
            state.obs_normalizer_state, batch.steps.view.observation, batch.mask
        )
        data = n_step_batch(batch, self.discount, lambda view: self.normalize_view(normalizer_state, view))
        target_key, actor_key = jax.random.split(key)
        alpha = self.temperature.alpha(state.delayed.temperature)
        critics, statistics, critic_opt, metrics = self._fit_critics(state, data, alpha, target_key)
        # batch.update_index is the same for all seeds, so under vmap this stays a branch
        delayed = jax.lax.cond(
            (batch.update_index + 1) % self.policy_delay == 0,
            lambda delayed: self._update_actor(delayed, running_minimum(critics, statistics), data, actor_key),
            lambda delayed: delayed,
            state.delayed,
        )
        state = CrossQState(delayed, critics, statistics, critic_opt, normalizer_state, state.num_updates + 1)
        metrics |= {"entropy": delayed.entropy, "temperature": alpha, "actor_gradient": delayed.gradient_norm}
        return state, Report(metrics)

    def _fit_critics(
        self, state: CrossQState, data: NStepBatch, alpha: Float[Array, ""], key: Key[Array, ""]
    ) -> tuple[BatchRenormQ, Statistics, PyTree, dict[str, Array]]:
        def next_action(view, key):
            return state.actor(view).sample_with_log_prob(key)

        next_actions, log_probs = jax.vmap(next_action)(data.next_view, jax.random.split(key, data.reward.shape[0]))
        now = data.critic_observation, data.action, data.alive
        then = data.next_critic_observation, next_actions, data.alive
        observations, actions, mask = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), now, then)

        def loss(critics):
            values, statistics = jax.vmap(lambda critic, s: critic.train(s, observations, actions, mask))(
                critics, state.critic_statistics
            )
            values, next_values = jnp.split(values, 2, axis=1)
            target = data.reward + data.discount * (jnp.min(next_values, axis=0) - alpha * log_probs)
            error = jnp.square(values - jax.lax.stop_gradient(target))
            losses = jax.vmap(masked_mean, in_axes=(0, None))(error, data.alive)
            means = {"critic_loss": jnp.mean(losses), "value": masked_mean(jnp.mean(values, axis=0), data.alive)}
            return 0.5 * jnp.sum(losses), (statistics, means)

        optimizer = build_optimizer(self.optimizer, self.learning_rate)
        critics, opt_state, (statistics, metrics), norm = gradient_step(
            optimizer, loss, state.critics, state.critic_opt_state
        )
        return critics, statistics, opt_state, metrics | {"critic_gradient": norm}

    def _update_actor(
        self, delayed: CrossQActorState, q_fn: QValueFn, data: NStepBatch, key: Key[Array, ""]
    ) -> CrossQActorState:
        alpha = self.temperature.alpha(delayed.temperature)
        keys = jax.random.split(key, data.reward.shape[0])

        def single_value(distribution, observation, key):
            action, log_prob = distribution.sample_with_log_prob(key)
            return q_fn(observation, action[None])[0] - alpha * log_prob, -log_prob

        def loss(network):
            distributions, statistics = network.train(delayed.actor.statistics, data.view, data.alive)
            values, entropies = jax.vmap(single_value)(distributions, data.critic_observation, keys)
            return -masked_mean(values, data.alive), (statistics, masked_mean(entropies, data.alive))

        network, opt_state, (statistics, entropy), norm = gradient_step(
            build_optimizer(self.optimizer, self.learning_rate), loss, delayed.actor.network, delayed.opt_state
        )
        temperature = self.temperature.update(delayed.temperature, entropy)
        return CrossQActorState(RunningActor(network, statistics), opt_state, temperature, entropy, norm)


def ensemble_values(
    critics: BatchRenormQ, statistics: Statistics, observation: PyTree, actions: Float[Array, "k *action"]
) -> Float[Array, "members k"]:
    """Q-values of ``k`` actions by every member of an ensemble, by running statistics."""
    return jax.vmap(lambda critic, s: critic(s, observation, actions))(critics, statistics)


def running_minimum(critics: BatchRenormQ, statistics: Statistics) -> QValueFn:
    """Minimum over the members of an ensemble, by running statistics."""
    return lambda observation, actions: jnp.min(ensemble_values(critics, statistics, observation, actions), axis=0)
