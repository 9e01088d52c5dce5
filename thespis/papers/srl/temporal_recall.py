"""Temporal recall: a recurrent actor of action sequences, which learns from a critic of single actions.

The actor encodes one observation, then generates actions one after another. The encoded observation is the initial
state of a GRU whose input is the previous action; each state gives the distribution of one action. So a sequence may
have any length, whatever lengths were used in training.

A dynamics model predicts the observations between the actions of a sequence, so that the critic can value each action.
Neither model nor critic is needed when the actor plays.

Source: Patel and Siegelmann, 2025.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.actors.distributions import SquashedNormal
from thespis.actors.policy_heads import PolicyHead, SquashedGaussian, require_bounded, vmap_act
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.records import Critique, EnvSpec, Number, Transition, View
from thespis.core.spaces import Box, random_action
from thespis.critics.value_functions import QFunction, evaluate_ensemble
from thespis.learners.off_policy.soft_actor_critic import QValueFn, ensemble_min
from thespis.learners.off_policy.temperature import Temperature, TunedTemperature
from thespis.learners.optim.normalizers import IDENTITY, ObsNormalizer
from thespis.learners.optim.optimizers import Optimizer, gradient_step
from thespis.nets.body import Body
from thespis.nets.mlp import MLP, Linear, uniform_fan_in
from thespis.runtime.keys import seed_key

HiddenState = Float[Array, " units"]


class SequenceActor(eqx.Module):
    """Hidden layers, a GRU as wide as the last of them, and a squashed Gaussian head."""

    body: Body
    hidden_init: Linear
    cell: eqx.nn.GRUCell
    head: PolicyHead
    space: Box = eqx.field(static=True)

    def __init__(self, spec: EnvSpec, hidden_sizes: tuple[int, ...], key: Key[Array, ""]):
        if not isinstance(spec.action_space, Box):
            raise UserError(
                f"sequences are of one box of actions, {spec.name} has {spec.action_space}: use sac, dqn or ppo"
            )
        require_bounded(spec.action_space)
        body_key, init_key, cell_key, head_key = jax.random.split(key, 4)
        self.space, units = spec.action_space, hidden_sizes[-1]
        self.body = Body(
            spec.observation_space, hidden_sizes[:-1], body_key, init=uniform_fan_in, activation=jax.nn.relu
        )
        self.hidden_init = Linear(self.body.feature_size, units, uniform_fan_in, init_key)
        self.cell = eqx.nn.GRUCell(jnp.zeros(self.space.shape).size, units, key=cell_key)
        self.head = PolicyHead(
            spec.action_space, units, head_key, init=uniform_fan_in, continuous_head=SquashedGaussian()
        )

    def encode(self, view: View) -> HiddenState:
        """The initial GRU state for an observation."""
        return self.hidden_init(self.body((), view.observation)[0])

    def step(
        self, hidden_state: HiddenState, previous_action: Float[Array, "*action"]
    ) -> tuple[SquashedNormal, HiddenState]:
        """The distribution of the action after ``previous_action``, and the new GRU state."""
        hidden_state = self.cell(previous_action.ravel(), hidden_state)
        distribution = self.head(hidden_state)
        assert isinstance(distribution, SquashedNormal)
        return distribution, hidden_state


class SequenceMemory(eqx.Module):
    """State of an action sequence: the GRU state, the previous action, and steps left before the next observation."""

    hidden_state: Float[Array, "*row units"]
    previous_action: Float[Array, "*row *action"]
    steps_left: Int[Array, "*row"]


class SequencePolicy(eqx.Module):
    """Behaviour policy of a :class:`SequenceActor`; ``random_actions`` is true until the first update.

    It uses an observation once in ``action_sequence_length`` steps.
    """

    actor: SequenceActor
    obs_normalizer_state: PyTree
    random_actions: Bool[Array, ""]
    mode: Mode = eqx.field(static=True)
    action_sequence_length: int = eqx.field(static=True)

    def init_memory(self, n: int) -> SequenceMemory:
        """Memory of fresh episodes: no previous action, and an observation is due."""
        shape = self.actor.space.shape
        return SequenceMemory(
            jnp.zeros((n, self.actor.cell.hidden_size)), jnp.zeros((n, *shape)), jnp.zeros(n, "int32")
        )

    def __call__(
        self, memory: SequenceMemory, view: View, key: Key[Array, ""]
    ) -> tuple[Float[Array, "*action"], SequenceMemory]:
        """One action for one normalised view, which matters only where a new sequence starts, and the new memory."""
        starts = memory.steps_left == 0
        hidden = jnp.where(starts, self.actor.encode(view), memory.hidden_state)
        distribution, hidden = self.actor.step(hidden, memory.previous_action)
        action = self._select_action(distribution, key)
        return action, SequenceMemory(
            hidden, action, jnp.where(starts, self.action_sequence_length, memory.steps_left) - 1
        )

    def _select_action(self, distribution: SquashedNormal, key: Key[Array, ""]) -> Float[Array, "*action"]:
        if self.mode is Mode.EXPLOIT:
            return distribution.mode()
        if self.mode is Mode.SAMPLE:
            return distribution.sample(key)
        sample_key, random_key = jax.random.split(key)
        return jnp.where(
            self.random_actions, random_action(self.actor.space, random_key), distribution.sample(sample_key)
        )


class DynamicsModel(eqx.Module):
    """Predicts the next observation from an observation and a canonical action, both boxes."""

    mlp: MLP
    out: Linear
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, spec: EnvSpec, hidden_sizes: tuple[int, ...], key: Key[Array, ""]):
        observation_space, action_space = spec.observation_space, spec.action_space
        if not (
            isinstance(observation_space, Box)
            and observation_space.dtype == "float32"
            and isinstance(action_space, Box)
        ):
            raise UserError(
                f"a dynamics model needs a float32 box of observations and a box of actions, {spec.name} has "
                f"{observation_space} and {action_space}: use sac or ppo"
            )
        mlp_key, out_key = jax.random.split(key)
        self.shape = observation_space.shape
        self.mlp = MLP(
            math.prod(observation_space.shape) + math.prod(action_space.shape),
            hidden_sizes,
            uniform_fan_in,
            jax.nn.relu,
            mlp_key,
        )
        self.out = Linear(hidden_sizes[-1], math.prod(observation_space.shape), uniform_fan_in, out_key)

    def __call__(
        self, observation: Float[Array, "*observation"], action: Float[Array, "*action"]
    ) -> Float[Array, "*observation"]:
        """The predicted observation after ``action``."""
        both = jnp.concatenate([observation.ravel(), action.ravel()])
        return self.out(self.mlp(both)).reshape(self.shape)


class TemporalRecall(eqx.Module):
    """Inputs of an actor step of an action-sequence policy: Q-function, dynamics model and temperature."""

    q_fn: QValueFn
    dynamics: DynamicsModel
    alpha: Float[Array, ""]
    action_sequence_length: int = eqx.field(static=True)
    use_predicted_states: bool = eqx.field(static=True, default=True)
    """Whether the model predicts the observations; else every action is valued at the observation of the first."""

    def soft_values(
        self, actor: SequenceActor, view: View, previous_action: Float[Array, "*action"], key: Key[Array, ""]
    ) -> tuple[Float[Array, " action_sequence_length"], Float[Array, " action_sequence_length"]]:
        """Soft values ``Q(s_j, a_j) - alpha log pi(a_j)`` of one sampled sequence, and minus its log-densities (nats).

        ``s_0`` is ``view``; later states are predicted and pass no gradient, while gradients flow from each action to
        those it was conditioned on. ``previous_action`` is the action before the first.
        """

        def step(carry: tuple[Array, Array, Array], key: Key[Array, ""]):
            hidden, previous, observation = carry
            distribution, hidden = actor.step(hidden, previous)
            action, log_prob = distribution.sample_with_log_prob(key)
            value = self.q_fn(observation, action[None])[0] - self.alpha * log_prob
            if self.use_predicted_states:
                observation = jax.lax.stop_gradient(self.dynamics(observation, action))
            return (hidden, action, observation), (value, -log_prob)

        initial = actor.encode(view), previous_action, view.observation
        return jax.lax.scan(step, initial, jax.random.split(key, self.action_sequence_length))[1]

    def actor_step(
        self,
        optimizer: Optimizer,
        actor: SequenceActor,
        opt_state: PyTree,
        views: View,
        previous_action: Float[Array, "row *action"],
        keys: Key[Array, " row"],
    ) -> tuple[SequenceActor, PyTree, Float[Array, ""]]:
        """One gradient step on the mean over rows of the summed soft values of a sequence.

        Returns the actor, the optimizer state, and the mean entropy of an action before the step.
        """

        def loss(actor: SequenceActor):
            values, entropy = jax.vmap(self.soft_values, in_axes=(None, 0, 0, 0))(actor, views, previous_action, keys)
            return -jnp.mean(jnp.sum(values, axis=1)), jnp.mean(entropy)

        return gradient_step(optimizer, loss, actor, opt_state)[:3]


def fit_dynamics(
    optimizer: Optimizer,
    dynamics: DynamicsModel,
    opt_state: PyTree,
    observations: Float[Array, "row *seen"],
    actions: Float[Array, "row *action"],
    next_observations: Float[Array, "row *seen"],
) -> tuple[DynamicsModel, PyTree, Float[Array, ""]]:
    """One gradient step of the dynamics model on observed transitions.

    Returns the model, the optimizer state, and the mean squared error before the step, per observed number.
    """

    def loss(dynamics: DynamicsModel):
        error = jnp.mean((jax.vmap(dynamics)(observations, actions) - next_observations) ** 2)
        return error, error

    dynamics, opt_state, error, _ = gradient_step(optimizer, loss, dynamics, opt_state)
    return dynamics, opt_state, error


@runtime_checkable
class SequenceState(Protocol):
    """State that every method with an action-sequence actor has."""

    @property
    def actor(self) -> SequenceActor:
        """The actor of action sequences."""
        ...

    @property
    def critics(self) -> QFunction:
        """An ensemble of critics of single actions."""
        ...

    @property
    def dynamics(self) -> DynamicsModel:
        """The learned dynamics model of the environment."""
        ...

    @property
    def temperature(self) -> PyTree:
        """State of the entropy temperature."""
        ...

    @property
    def obs_normalizer_state(self) -> PyTree:
        """State of the observation normalizer."""
        ...

    @property
    def num_updates(self) -> Int[Array, ""]:
        """Number of updates so far."""
        ...


class SequenceActorCritic(eqx.Module):
    """Base of methods with an action-sequence actor. A concrete one adds ``init`` and ``update``."""

    discount: Number = 0.99
    """Discount per step, in [0, 1]."""
    obs_normalizer: ObsNormalizer | None = None
    """Normalization of observations: None or RunningMeanStd."""
    action_sequence_length: int = eqx.field(static=True, default=4)
    """Actions per sequence, in training and play: the policy observes once in this many steps."""
    temperature: Temperature = TunedTemperature()
    """Entropy temperature: TunedTemperature or FixedTemperature."""

    def with_decision_interval(self, interval: int) -> SequenceActorCritic:
        """The same method, observing once in ``interval`` steps."""
        return dataclasses.replace(self, action_sequence_length=interval)

    def policy(self, state: SequenceState, mode: Mode) -> SequencePolicy:
        """The part that actors carry: actor, observation normalizer state, mode and sequence length."""
        return SequencePolicy(
            state.actor, state.obs_normalizer_state, state.num_updates == 0, mode, self.action_sequence_length
        )

    def init_memory(self, policy: SequencePolicy, n: int) -> SequenceMemory:
        """Memory without a sequence in progress."""
        return policy.init_memory(n)

    def act(
        self, policy: SequencePolicy, memory: SequenceMemory, view: View, key: Key[Array, ""]
    ) -> tuple[PyTree, SequenceMemory, PyTree]:
        """The next action of the sequence in progress, or the first of a new one; extras hold the previous action."""

        def act_single(memory: SequenceMemory, view: View, key: Key[Array, ""]) -> Any:
            return *policy(memory, self.normalize_view(policy.obs_normalizer_state, view), key), {
                "previous": memory.previous_action
            }

        return vmap_act(act_single, memory, view, key)

    def judge(self, state: SequenceState, episode: Transition) -> Critique:
        """Minimum Q-values of the actions, their advantage over the soft value of a new sequence, and the spread.

        The spread is the standard deviation of the Q-values over the critics.
        """
        alpha = self.temperature.alpha(state.temperature)
        recall = TemporalRecall(ensemble_min(state.critics), state.dynamics, alpha, 1)

        def evaluate_step(view: View, previous: Array, action: Array, key: Key[Array, ""]) -> Any:
            view = self.normalize_view(state.obs_normalizer_state, view)
            values = evaluate_ensemble(state.critics, view.observation, action[None])[:, 0]
            return values, *recall.soft_values(state.actor, view, previous, key)

        keys = jax.random.split(seed_key(0), episode.reward.shape[0])
        previous = jnp.concatenate([jnp.zeros_like(episode.action[:1]), episode.action[:-1]])
        values, soft, entropy = jax.vmap(evaluate_step)(episode.view, previous, episode.action, keys)
        value, spread = jnp.min(values, axis=1), jnp.std(values, axis=1)
        return Critique(value, value - soft[:, 0], spread, discount=self.discount, entropy_bonus=alpha * entropy[:, 0])

    def normalize_view(self, obs_normalizer_state: PyTree, view: View) -> View:
        """One view with its observation normalized, as the networks see it."""
        return View((self.obs_normalizer or IDENTITY).normalize(obs_normalizer_state, view.observation))
