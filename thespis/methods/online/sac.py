"""Soft actor-critic: off-policy actor-critic that maximizes return plus entropy, with twin critics.

The critics regress on ``r + gamma * E_a'[min_i Q_i(s', a') - alpha log pi(a'|s')]``; the actor minimizes ``E_a[alpha
log pi(a|s) - min_i Q_i(s, a)]``; the temperature alpha is adjusted until the entropy meets its target. The expectations
are one reparameterized sample for a continuous action, and exact sums for a discrete action.

Source: Haarnoja et al., 2018b; discrete actions: Christodoulou, 2019.

Differs from common code: the actor uses the critics after their update, and the temperature's update follows the
actor's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.actors.continuous_heads import SoftActorHead
from thespis.actors.policy_heads import vmap_act
from thespis.actors.stochastic import DEFAULT_POLICY_HEAD, SoftActor, StochasticActor
from thespis.core.feeds import WindowFeed
from thespis.core.records import Batch, Citation, EnvSpec, Number, Report, View
from thespis.critics.hypernetwork import ConcatCritic, CriticArchitecture
from thespis.critics.value_functions import QFunction, critic_observation, evaluate_ensemble, init_ensemble
from thespis.data.feeds import Replay
from thespis.learners.off_policy.causal_entropy import PLAIN_ENTROPY, EntropyBonus
from thespis.learners.off_policy.critic_updates import fit_critics, n_step_batch
from thespis.learners.off_policy.dormant_reset import NO_RESET, NetworkReset
from thespis.learners.off_policy.soft_actor_critic import (
    ActionEvaluation,
    ActionSampler,
    SoftActorCritic,
    actor_step,
    ensemble_min,
    soft_value,
)
from thespis.learners.off_policy.target_filters import NO_FILTER, TargetFilter
from thespis.learners.off_policy.temperature import Temperature, TunedTemperature
from thespis.learners.optim.normalizers import IDENTITY
from thespis.learners.optim.optimizers import LearningRate, Optimizer, OptimizerFactory, build_optimizer, polyak_update
from thespis.nets.body import NetworkOptions, ObservationEncoder


class SACState(eqx.Module):
    """Training state of SAC: networks, temperature, optimizer states and normalizer state."""

    actor: StochasticActor
    critics: QFunction
    target_critics: QFunction
    temperature: PyTree
    actor_opt_state: PyTree
    critic_opt_state: PyTree
    obs_normalizer_state: PyTree
    num_updates: Int[Array, ""]
    entropy_state: PyTree = ()
    network_reset_state: PyTree = ()


class SAC(SoftActorCritic):
    """Soft actor-critic: maximizes return plus entropy, off-policy, with twin critics; box or discrete actions."""

    learning_rate: LearningRate = 3e-4
    """Learning rate of actor and critics."""
    critic_learning_rate: LearningRate | None = None
    """Learning rate of the critics: None (``learning_rate``) or one of their own."""
    optimizer: OptimizerFactory | None = None
    """Optimizer: None (Adam) or OptaxOptimizer (any of optax)."""
    tau: Number = 0.005
    """Polyak step size of the target critics at each update."""
    temperature: Temperature = TunedTemperature()
    """Entropy coefficient: TunedTemperature or FixedTemperature."""
    num_critics: int = eqx.field(static=True, default=2)
    """Number of critics in the ensemble; the minimum of their values counts."""
    critic: CriticArchitecture = ConcatCritic()
    """Critic architecture: ConcatCritic or HypernetworkCritic."""
    policy_head: SoftActorHead = eqx.field(static=True, default=DEFAULT_POLICY_HEAD)
    """Distribution head of the actor: SquashedGaussian, MixtureOfExperts or SquashedStateDependentNoise (gSDE: smooth
    exploration by noise that depends on the state)."""
    entropy: EntropyBonus | None = None
    """Entropy bonus: None (plain entropy) or CausalEntropy (action dimensions weighted by their effect on
    reward)."""
    target_filter: TargetFilter | None = None
    """Filter of the target critics' values: None or LowPassFilter."""
    network_reset: NetworkReset | None = None
    """Resets of network weights during training: None or DormantReset (blends networks with fresh ones)."""
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

    name: ClassVar[str] = "sac"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Soft Actor-Critic Algorithms and Applications", "Haarnoja et al.", 2018, "arXiv:1812.05905"),
        Citation("Soft Actor-Critic for Discrete Action Settings", "Christodoulou", 2019, "arXiv:1910.07207"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "uniformly random actions until the first update",
        "log-probabilities from the value before squashing",
        "targets use the minimum of the target critics, the same for all critics; values include the entropy bonus",
        "the actor is updated on the critics after their update",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> SACState:
        """Initialize actor, critics and temperature."""
        actor_key, critic_key = jax.random.split(key)
        options = NetworkOptions(self.activation, self.encoder, self.layer_norm)
        critics = init_ensemble(
            lambda k: self.critic.build(spec, self.hidden_sizes, k, options), self.num_critics, critic_key
        )
        actor = SoftActor(spec, self.hidden_sizes, actor_key, options=options, continuous_head=self.policy_head)
        return self.init_from(spec, actor, critics)

    def init_from(self, spec: EnvSpec, actor: StochasticActor, critics: QFunction) -> SACState:
        """Initialize the state from existing networks; ``critics`` is an ensemble."""
        self.policy_head.check_space(spec.action_space)
        (self.target_filter or NO_FILTER).check_space(spec.action_space)
        return SACState(
            actor,
            critics,
            critics,
            self.temperature.init(spec),
            build_optimizer(self.optimizer, self.learning_rate).init(actor),
            self._critic_optimizer().init(critics),
            (self.obs_normalizer or IDENTITY).init(spec.observation_space),
            jnp.zeros((), "int32"),
            (self.entropy or PLAIN_ENTROPY).init(spec),
            (self.network_reset or NO_RESET).init((actor, critics)),
        )

    def target_action(self, state: SACState, view: View, key: Key[Array, ""]) -> PyTree:
        """Action that targets take in ``view``: a sample of the actor."""
        return vmap_act(
            lambda _, view, key: state.actor(self.normalize_view(state.obs_normalizer_state, view)).sample(key),
            (),
            view,
            key,
        )

    def evaluate_action(
        self, state: SACState, view: View, privileged: PyTree, actions: PyTree, key: Key[Array, ""]
    ) -> ActionEvaluation:
        """Minimum Q-value of the ensemble, its advantage over the soft value, critic disagreement, entropy bonus."""
        q = evaluate_ensemble(state.critics, critic_observation(privileged, view.observation), actions)[:, 0]
        alpha = self.temperature.alpha(state.temperature)
        value, entropy = soft_value(
            state.actor, ensemble_min(state.critics), alpha, view, key, privileged, self._action_sampler(state)
        )
        return jnp.min(q), jnp.min(q) - value, jnp.std(q), alpha * entropy

    def _critic_optimizer(self) -> Optimizer:
        rate = self.learning_rate if self.critic_learning_rate is None else self.critic_learning_rate
        return build_optimizer(self.optimizer, rate)

    def _action_sampler(self, state: SACState) -> ActionSampler:
        return functools.partial((self.entropy or PLAIN_ENTROPY).action_samples, state.entropy_state)

    def update(self, state: SACState, batch: Batch, key: Key[Array, ""]) -> tuple[SACState, Report]:
        """One gradient step of critics, actor and temperature, and one Polyak step of the target critics."""
        normalizer_state = (self.obs_normalizer or IDENTITY).update(
            state.obs_normalizer_state, batch.steps.view.observation, batch.mask
        )
        data = n_step_batch(batch, self.discount, lambda view: self.normalize_view(normalizer_state, view))
        target_keys, actor_keys = jax.random.split(key, (2, data.reward.shape[0]))
        alpha = self.temperature.alpha(state.temperature)
        optimizers = build_optimizer(self.optimizer, self.learning_rate), self._critic_optimizer()
        sample_actions = self._action_sampler(state)

        def next_value(view, key, privileged):
            evaluate = (self.target_filter or NO_FILTER).ensemble_min(state.target_critics, key)
            return soft_value(state.actor, evaluate, alpha, view, key, privileged, sample_actions)[0]

        next_values = jax.vmap(next_value)(data.next_view, target_keys, data.next_privileged)
        target = data.reward + data.discount * next_values
        critics, critic_opt, report = fit_critics(optimizers[1], state.critics, state.critic_opt_state, data, target)
        actor, actor_opt, (_, entropy), norm = actor_step(
            optimizers[0],
            state.actor,
            state.actor_opt_state,
            ensemble_min(critics),
            alpha,
            data.view,
            actor_keys,
            data.privileged,
            data.alive,
            action_sampler=sample_actions,
            actor_objective=self.policy_head.actor_objective,
        )
        networks = actor, critics, polyak_update(state.target_critics, critics, self.tau)
        (actor, critics, targets), (actor_opt, critic_opt) = (self.network_reset or NO_RESET).maybe_reset(
            state.network_reset_state, networks, (actor_opt, critic_opt), optimizers, batch.update_index, key
        )
        entropy_state = (self.entropy or PLAIN_ENTROPY).update(
            state.entropy_state, data, batch.steps.reward[0], batch.update_index
        )
        state = SACState(
            actor,
            critics,
            targets,
            self.temperature.update(state.temperature, entropy),
            actor_opt,
            critic_opt,
            normalizer_state,
            state.num_updates + 1,
            entropy_state,
            state.network_reset_state,
        )
        return state, report.with_metrics({"entropy": entropy, "temperature": alpha, "actor_gradient": norm})
