"""Actor-critic networks of on-policy methods, the rollout with values and advantages, and its processing.

The actor is stochastic, the critic predicts state values; both may have a recurrent core. :class:`ActorCriticNetwork`
is the protocol of the network that on-policy learning needs, for one agent or for a team as a whole.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from thespis.actors.distributions import Distribution
from thespis.actors.policy_heads import ContinuousHead, Gaussian, PolicyHead, action_probs, vmap_act
from thespis.actors.state_dependent_noise import renew_noise
from thespis.core.contracts import Mode
from thespis.core.records import Batch, Critique, EnvSpec, Number, Transition, View
from thespis.critics.value_functions import StateValue, critic_observation, critic_spec
from thespis.learners.optim.normalizers import AnyObsNormalizer, AnyRewardNormalizer
from thespis.nets.body import Body, NetworkOptions, unroll
from thespis.nets.mlp import Initializer, UniformLayer, orthogonal
from thespis.nets.recurrent import RecurrentCore
from thespis.nets.set_attention import SetEncoder
from thespis.objectives.decision_points import restrict_to_decisions
from thespis.objectives.returns import gae

DEFAULT_POLICY_HEAD = Gaussian()
TANH_NETWORK = NetworkOptions(jnp.tanh)
"""What actor-critic networks use without options."""


InitializerName = Literal["orthogonal", "uniform"]
"""Initial weights of an actor-critic's linear layers."""


def make_initializer(name: InitializerName, scale: float) -> Initializer:
    """Initial weights of one linear layer; only orthogonal ones are multiplied by ``scale``."""
    return orthogonal(scale) if name == "orthogonal" else UniformLayer()


@runtime_checkable
class ActorCriticNetwork(Protocol):
    """An actor that returns its action distributions, and a state-value critic."""

    def init_memory(self, n: int) -> Any:
        """Recurrent memories of actor and critic for ``n`` fresh episodes."""
        ...

    def action_distribution(self, memory: Any, view: View) -> tuple[Distribution, Any]:
        """The distribution over actions for one view, and the memories after it."""
        ...

    def distributions(self, memory: Any, views: View, is_first: Bool[Array, "time row"]) -> Distribution:
        """The distributions of a whole rollout, leaves ``[time, row, ...]``."""
        ...

    def values(
        self, memory: Any, critic_observation: PyTree, is_first: Bool[Array, "time row"]
    ) -> tuple[Float[Array, "time row"], Any]:
        """State values of a whole rollout, from what the critic sees, and the critic's memory after each step."""
        ...

    def next_values(self, memories: Any, next_critic_observation: PyTree) -> Float[Array, "time row"]:
        """Values of the true next observations of the critic, each with the memory that leads to it."""
        ...

    def evaluate(
        self, memory: Any, views: View, critic_observation: PyTree, is_first: Bool[Array, "time row"]
    ) -> tuple[Distribution, Float[Array, "time row"]]:
        """Distributions and values of a whole rollout: what both networks compute alike is computed once."""
        ...


class ActorCritic(eqx.Module):
    """Actor and critic networks with a body (trunk) each.

    ``carries_critic_memory``: the critic sees the actor's observation, so its recurrent state is carried along while
    acting. A critic with privileged observations starts every rollout from a fresh recurrent state.
    """

    body: Body
    policy_head: PolicyHead
    critic: StateValue
    carries_critic_memory: bool = eqx.field(static=True)

    def __init__(
        self,
        spec: EnvSpec,
        hidden_sizes: tuple[int, ...],
        key: Key[Array, ""],
        *,
        memory: RecurrentCore | None = None,
        set_encoder: SetEncoder | None = None,
        options: NetworkOptions = TANH_NETWORK,
        policy_head: ContinuousHead = DEFAULT_POLICY_HEAD,
        initializer: InitializerName = "orthogonal",
    ):
        init = functools.partial(make_initializer, initializer)
        body_key, head_key, critic_key, value_key = jax.random.split(key, 4)

        def body(space, key):
            return options.build_body(
                space, hidden_sizes, key, init=init(2**0.5), memory=memory, set_encoder=set_encoder
            )

        self.carries_critic_memory = spec.privileged_space is None
        self.body = body(spec.observation_space, body_key)
        self.policy_head = PolicyHead(
            spec.action_space, self.body.feature_size, head_key, init=init(0.01), continuous_head=policy_head
        )
        self.critic = StateValue(body(critic_spec(spec).observation_space, critic_key), init(1.0), value_key)

    def init_memory(self, n: int) -> Any:
        """Initial recurrent states of actor and critic for ``n`` fresh episodes, and the actor's noise, if any."""
        critic_memory = self.critic.body.init_memory(n) if self.carries_critic_memory else ()
        noise = self.policy_head.init_noise(n)
        return (self.body.init_memory(n), critic_memory, *([] if noise is None else [noise]))

    def action_distribution(self, memory: Any, view: View) -> tuple[Distribution, Any]:
        """Action distribution for one view, and the recurrent states after it."""
        features, actor_memory = self.body(memory[0], view.observation)
        critic_memory, noise = memory[1], memory[2:]
        if self.carries_critic_memory and self.critic.body.core is not None:
            _, critic_memory = self.critic.body(critic_memory, view.observation)
        return self.policy_head(features, view.action_mask, *noise), (actor_memory, critic_memory, *noise)

    def distributions(self, memory: Any, views: View, is_first: Bool[Array, "time row"]) -> Distribution:
        """Action distributions of a whole rollout, leaves ``[time, row, ...]``."""
        features, _ = unroll(self.body, self.body.resume_memory(memory[0]), views.observation, is_first)
        return jax.vmap(jax.vmap(self.policy_head))(features, views.action_mask)

    def values(
        self, memory: Any, critic_observation: PyTree, is_first: Bool[Array, "time row"]
    ) -> tuple[Float[Array, "time row"], Any]:
        """State values of a whole rollout of critic observations, and the critic's recurrent state after each step."""
        initial = memory[1] if self.carries_critic_memory else self.critic.body.init_memory(is_first.shape[1])
        features, memories = unroll(
            self.critic.body, self.critic.body.resume_memory(initial), critic_observation, is_first
        )
        return jax.vmap(jax.vmap(self.critic.out))(features)[..., 0], memories

    def next_values(self, memories: Any, next_critic_observation: PyTree) -> Float[Array, "time row"]:
        """Values of the true next critic observations, each with the recurrent state that leads to it."""
        return jax.vmap(jax.vmap(lambda memory, o: self.critic(memory, o)[0]))(memories, next_critic_observation)

    def evaluate(
        self, memory: Any, views: View, critic_observation: PyTree, is_first: Bool[Array, "time row"]
    ) -> tuple[Distribution, Float[Array, "time row"]]:
        """Action distributions and state values of a whole rollout."""
        return self.distributions(memory, views, is_first), self.values(memory, critic_observation, is_first)[0]


class OnPolicyActor(eqx.Module):
    """Actor of an on-policy method: network, observation normalizer and acting mode."""

    network: ActorCriticNetwork
    obs_normalizer_state: PyTree
    obs_normalizer: AnyObsNormalizer
    mode: Mode = eqx.field(static=True)

    def action_distribution(self, memory: Any, view: View) -> tuple[Distribution, Any]:
        """Action distribution for one view with raw observations, and the recurrent states after it."""
        return self.network.action_distribution(
            memory, View(self.obs_normalizer.normalize(self.obs_normalizer_state, view.observation), view.action_mask)
        )

    def act(self, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Actions of all rows, recurrent states after them, and the log-probabilities of the actions."""

        def single(memory, view, key):
            if self.mode is not Mode.EXPLOIT:
                memory = renew_noise(memory, key)
            policy, memory = self.action_distribution(memory, view)
            if self.mode is Mode.EXPLOIT:
                action = policy.mode()
                log_prob = policy.log_prob(action)
            else:
                action, log_prob = policy.sample_with_log_prob(key)
            return action, memory, {"log_prob": log_prob}

        return vmap_act(single, memory, view, key)

    def action_probs(self, memory: Any, view: View) -> Float[Array, "row n"]:
        """Probability of every action, in all rows.

        Raises ``UserError`` unless the action space is one discrete choice.
        """

        def single(memory, view):
            return action_probs(self.action_distribution(memory, view)[0], greedy=self.mode is Mode.EXPLOIT)

        return jax.vmap(single)(memory, view)


class RolloutWithValues(eqx.Module):
    """A rollout with normalized observations and rewards, and the critic's values; leaves ``[time, row, ...]``.

    ``next_value`` is the value of the true next observation, also where an episode was truncated. ``alive``: where the
    agent acted (``None``: everywhere); other steps take no part in learning. ``privileged``: what only critics see.
    """

    view: View
    action: PyTree
    log_prob: Float[Array, "time row"]
    reward: Float[Array, "time row"]
    value: Float[Array, "time row"]
    next_value: Float[Array, "time row"]
    terminated: Bool[Array, "time row"]
    done: Bool[Array, "time row"]
    is_first: Bool[Array, "time row"]
    alive: Bool[Array, "time row"] | None = None
    privileged: PyTree = None

    def with_advantages(
        self, advantage: Float[Array, "time row"], target: Float[Array, "time row"]
    ) -> RolloutWithAdvantages:
        """The rollout with advantages and value targets."""
        estimates = self.log_prob, self.value, advantage, target
        return RolloutWithAdvantages(self.view, self.action, *estimates, self.is_first, self.alive, self.privileged)

    def estimate_advantages(self, estimator: Callable[..., PyTree], *extra_inputs: Float[Array, "time row"]) -> PyTree:
        """Apply an advantage estimator to the decisions of every row.

        Calls ``estimator(reward, value, next_value, terminated, done, *extra_inputs)`` with arrays ``[time]``.
        """
        rows = (self.reward, self.value, self.next_value, self.terminated, self.done, *extra_inputs)
        per_row = jax.vmap(lambda alive, *row: restrict_to_decisions(estimator, alive)(*row), in_axes=1, out_axes=1)
        return per_row(self.alive, *rows)


class RolloutWithAdvantages(eqx.Module):
    """A rollout with values, advantages and value targets; observations are normalized, leaves ``[time, row, ...]``."""

    view: View
    action: PyTree
    log_prob: Float[Array, "time row"]
    value: Float[Array, "time row"]
    advantage: Float[Array, "time row"]
    target: Float[Array, "time row"]
    is_first: Bool[Array, "time row"]
    alive: Bool[Array, "time row"] | None = None
    privileged: PyTree = None


NormalizerStates = tuple[PyTree, PyTree, PyTree]
"""States of the normalizers of observations, of rewards, and of privileged observations."""


class RolloutProcessor(eqx.Module):
    """Normalizes a rollout and computes values, advantages and value targets.

    Advantages are GAE (Schulman et al., 2016).
    """

    obs_normalizer: AnyObsNormalizer
    reward_normalizer: AnyRewardNormalizer
    discount: Number
    gae_lambda: Number
    num_envs: int = eqx.field(static=True, default=1)
    """Environments of a rollout."""

    def init_normalizers(self, spec: EnvSpec) -> NormalizerStates:
        """Initial states of the observation and reward normalizers."""
        privileged = () if spec.privileged_space is None else self.obs_normalizer.init(spec.privileged_space)
        return self.obs_normalizer.init(spec.observation_space), self.reward_normalizer.init(self.num_envs), privileged

    def compute_values(
        self, network: ActorCriticNetwork, normalizer_states: NormalizerStates, batch: Batch
    ) -> RolloutWithValues:
        """The normalized rollout with the values of every step's observation and next observation."""
        steps = batch.steps
        view, alive = (
            View(self._normalize_observation(normalizer_states[0], steps.view.observation), steps.view.action_mask),
            steps.view.alive,
        )
        next_observation = self._normalize_observation(normalizer_states[0], steps.next_view.observation)
        privileged, next_privileged = (
            self._normalize_observation(normalizer_states[2], x) for x in (steps.privileged, steps.next_privileged)
        )
        value, memories = network.values(batch.memory, critic_observation(privileged, view.observation), steps.is_first)
        next_value = network.next_values(memories, critic_observation(next_privileged, next_observation))
        reward, log_prob = (
            self.reward_normalizer.normalize(normalizer_states[1], steps.reward),
            steps.extras["log_prob"],
        )
        ends = steps.terminated, steps.done
        return RolloutWithValues(
            view, steps.action, log_prob, reward, value, next_value, *ends, steps.is_first, alive, privileged
        )

    def _normalize_observation(self, obs_normalizer_state: PyTree, observation: PyTree) -> PyTree:
        return (
            None
            if observation is None
            else jax.vmap(jax.vmap(lambda o: self.obs_normalizer.normalize(obs_normalizer_state, o)))(observation)
        )

    def compute_advantages(
        self, network: ActorCriticNetwork, normalizer_states: NormalizerStates, batch: Batch
    ) -> RolloutWithAdvantages:
        """Values, advantages and value targets of every step."""
        rollout = self.compute_values(network, normalizer_states, batch)
        advantage = self.gae_advantages(rollout)
        return rollout.with_advantages(advantage, rollout.value + advantage)

    def gae_advantages(self, rollout: RolloutWithValues) -> Float[Array, "time row"]:
        """GAE advantages of every step."""
        return rollout.estimate_advantages(functools.partial(gae, discount=self.discount, gae_lambda=self.gae_lambda))

    def update_normalizers(self, normalizer_states: NormalizerStates, batch: Batch) -> NormalizerStates:
        """Normalizer states with this rollout added.

        Called after the update, so that the update sees observations normalized as they were while acting.
        """
        steps, alive = batch.steps, batch.steps.view.alive
        mask = batch.mask if alive is None else batch.mask & alive
        return (
            self.obs_normalizer.update(normalizer_states[0], steps.view.observation, mask),
            self.reward_normalizer.update(normalizer_states[1], steps.reward, steps.done, self.discount, alive),
            ()
            if steps.privileged is None
            else self.obs_normalizer.update(normalizer_states[2], steps.privileged, mask),
        )

    def judge(self, network: ActorCriticNetwork, normalizer_states: NormalizerStates, episode: Transition) -> Critique:
        """Values and advantages of one episode ``[time]``, in the environment's units of reward."""
        steps = jax.tree.map(lambda x: x[:, None], episode)
        mask = jnp.ones(steps.reward.shape, bool)
        steps = eqx.tree_at(lambda s: s.extras, steps, {"log_prob": jnp.zeros(steps.reward.shape)})
        batch = Batch(steps, mask, network.init_memory(1), jnp.zeros((), "int32"))
        critique = self.critique(normalizer_states, self.compute_advantages(network, normalizer_states, batch))
        return dataclasses.replace(jax.tree.map(lambda x: x[..., 0], critique), discount=self.discount)

    def critique(self, normalizer_states: NormalizerStates, rollout: RolloutWithAdvantages) -> Critique:
        """Values and advantages of a rollout ``[time, row]``, in the environment's units of reward."""
        unit = self.reward_normalizer.reward_scale(normalizer_states[1])
        discount = jnp.broadcast_to(jnp.asarray(self.discount, "float32"), rollout.value.shape[1:])
        return Critique(value=rollout.value * unit, advantage=rollout.advantage * unit, discount=discount)
