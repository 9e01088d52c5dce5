"""Soft actor-critic as first published: with a state-value network and a fixed entropy coefficient.

The state value ``V`` regresses on ``E_a[min_i Q_i(s, a) - alpha log pi(a|s)]``; both critics ``Q_i`` on ``r + gamma
V_target(s')``, so that no action is sampled in the next state; the actor minimizes ``E_a[alpha log pi(a|s) - min_i
Q_i(s, a)]``. Only ``V`` has a target network, a Polyak average.

Source: Haarnoja et al., 2018a, algorithm 1.

Differs: the paper multiplies rewards by 5 (Humanoid: 20) at ``alpha = 1``; here rewards are not scaled and ``alpha`` is
the inverse, 0.2, which is the same objective in the environment's units. Critics are updated first, ``V`` and actor on
the updated critics; discrete actions have exact sums (Christodoulou, 2019).
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.actors.stochastic import SoftActor
from thespis.core.feeds import WindowFeed
from thespis.core.records import Batch, Citation, EnvSpec, Number, Report, View
from thespis.critics.hypernetwork import ConcatCritic, CriticArchitecture
from thespis.critics.value_functions import (
    QFunction,
    StateValue,
    critic_observation,
    critic_spec,
    evaluate_ensemble,
    init_ensemble,
)
from thespis.data.feeds import Replay
from thespis.learners.off_policy.critic_updates import fit_critics, n_step_batch
from thespis.learners.off_policy.soft_actor_critic import (
    ActionEvaluation,
    SoftActorCritic,
    actor_step,
    ensemble_min,
    soft_value,
)
from thespis.learners.off_policy.temperature import FixedTemperature, Temperature
from thespis.learners.off_policy.trust_region import NO_TRUST_REGION, TrustRegion
from thespis.learners.optim.normalizers import IDENTITY
from thespis.learners.optim.optimizers import (
    LearningRate,
    OptimizerFactory,
    build_optimizer,
    gradient_step,
    polyak_update,
)
from thespis.nets.body import Body
from thespis.nets.mlp import uniform_fan_in
from thespis.objectives.statistics import masked_mean


class SACVState(eqx.Module):
    """Training state of SAC with a state value; ``opt_states`` are those of actor, critics and value."""

    actor: SoftActor
    critics: QFunction
    value: StateValue
    target_value: StateValue
    trust_region_state: PyTree
    temperature: PyTree
    opt_states: tuple[PyTree, PyTree, PyTree]
    obs_normalizer_state: PyTree
    num_updates: Int[Array, ""]


class SACV(SoftActorCritic):
    """First version of soft actor-critic: state-value network, fixed entropy coefficient; box or discrete actions."""

    learning_rate: LearningRate = 3e-4
    """Learning rate of actor, critics and state value."""
    optimizer: OptimizerFactory | None = None
    """Optimizer: None (Adam) or OptaxOptimizer (any of optax)."""
    tau: Number = 0.005
    """Polyak step size of the target value network at each update."""
    temperature: Temperature = FixedTemperature(0.2)
    """Entropy coefficient, the inverse of the paper's reward scale: FixedTemperature or TunedTemperature."""
    trust_region: TrustRegion | None = None
    """Trust region of the actor: None or MirrorDescentStep."""
    num_critics: int = eqx.field(static=True, default=2)
    """Number of critics; the minimum of their values counts."""
    critic: CriticArchitecture = ConcatCritic()
    """Critic architecture: ConcatCritic or HypernetworkCritic."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Units of each hidden layer, of actor, critics and state value."""
    feed: WindowFeed = eqx.field(static=True, default=Replay(batch_size=256, learning_starts=1_000))
    """Replay buffer: buffer_size, batch_size, learning_starts, num_updates."""

    name: ClassVar[str] = "sac-v"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Soft Actor-Critic: Off-Policy Maximum Entropy Deep RL", "Haarnoja et al.", 2018, "arXiv:1801.01290"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "uniformly random actions until the first update",
        "log-probabilities from the value before squashing",
        "all critics fitted to the target state value; values include the entropy bonus",
        "state value and actor are updated on the critics after their update, with the same sampled actions",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> SACVState:
        """Initialize actor, critics, state value and target value."""
        actor_key, critic_key, body_key, value_key = jax.random.split(key, 4)
        actor = SoftActor(spec, self.hidden_sizes, actor_key)
        critics = init_ensemble(lambda k: self.critic.build(spec, self.hidden_sizes, k), self.num_critics, critic_key)
        body = Body(
            critic_spec(spec).observation_space,
            self.hidden_sizes,
            body_key,
            init=uniform_fan_in,
            activation=jax.nn.relu,
        )
        value = StateValue(body, uniform_fan_in, value_key)
        optimizer = build_optimizer(self.optimizer, self.learning_rate)
        opt_states = optimizer.init(actor), optimizer.init(critics), optimizer.init(value)
        normalizer_state, temperature = (
            (self.obs_normalizer or IDENTITY).init(spec.observation_space),
            self.temperature.init(spec),
        )
        trust_region_state, num_updates = (self.trust_region or NO_TRUST_REGION).init(actor), jnp.zeros((), "int32")
        return SACVState(
            actor, critics, value, value, trust_region_state, temperature, opt_states, normalizer_state, num_updates
        )

    def evaluate_action(
        self, state: SACVState, view: View, privileged: PyTree, actions: PyTree, key: Key[Array, ""]
    ) -> ActionEvaluation:
        """Minimum Q-value, its advantage over the state value, critic disagreement and entropy bonus."""
        critic_input = critic_observation(privileged, view.observation)
        q = evaluate_ensemble(state.critics, critic_input, actions)[:, 0]
        value, _ = state.value((), critic_input)
        alpha = self.temperature.alpha(state.temperature)
        _, entropy = soft_value(state.actor, ensemble_min(state.critics), alpha, view, key, privileged)
        return jnp.min(q), jnp.min(q) - value, jnp.std(q), alpha * entropy

    def update(self, state: SACVState, batch: Batch, key: Key[Array, ""]) -> tuple[SACVState, Report]:
        """One gradient step of critics, actor, state value and temperature, and one Polyak step of the target value."""
        normalizer_state = (self.obs_normalizer or IDENTITY).update(
            state.obs_normalizer_state, batch.steps.view.observation, batch.mask
        )
        data = n_step_batch(batch, self.discount, lambda view: self.normalize_view(normalizer_state, view))
        alpha = self.temperature.alpha(state.temperature)
        optimizer = build_optimizer(self.optimizer, self.learning_rate)
        actor_opt, critic_opt, value_opt = state.opt_states

        def values(net, seen):
            return jax.vmap(lambda o: net((), o)[0])(seen)

        target = data.reward + data.discount * values(state.target_value, data.next_critic_observation)
        critics, critic_opt, report = fit_critics(optimizer, state.critics, critic_opt, data, target)
        actor, actor_opt, (soft, entropy), norm = actor_step(
            optimizer,
            state.actor,
            actor_opt,
            ensemble_min(critics),
            alpha,
            data.view,
            jax.random.split(key, data.reward.shape[0]),
            data.privileged,
            data.alive,
            lambda policy, view: (self.trust_region or NO_TRUST_REGION).penalty(
                state.trust_region_state, policy, view, alpha
            ),
        )

        def value_loss(net):
            loss = masked_mean((values(net, data.critic_observation) - soft) ** 2, data.alive)
            return loss, loss

        value, value_opt, loss, _ = gradient_step(optimizer, value_loss, state.value, value_opt)
        state = SACVState(
            actor,
            critics,
            value,
            polyak_update(state.target_value, value, self.tau),
            (self.trust_region or NO_TRUST_REGION).update(state.trust_region_state, actor, state.num_updates + 1),
            self.temperature.update(state.temperature, entropy),
            (actor_opt, critic_opt, value_opt),
            normalizer_state,
            state.num_updates + 1,
        )
        return state, report.with_metrics({"value_loss": loss, "entropy": entropy, "actor_gradient": norm})
