"""Actor-critic networks whose actor and critic share layers: the encoder, or all but the output layers."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Float, Key, PyTree

from thespis.actors.distributions import Distribution
from thespis.actors.policy_heads import ContinuousHead, PolicyHead
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, View
from thespis.core.spaces import Box
from thespis.learners.on_policy.actor_critic import (
    DEFAULT_POLICY_HEAD,
    TANH_NETWORK,
    ActorCritic,
    InitializerName,
    make_initializer,
)
from thespis.nets.body import Body, NetworkOptions, build_encoder, count_features, unroll
from thespis.nets.mlp import Linear
from thespis.nets.recurrent import RecurrentCore
from thespis.nets.set_attention import SetEncoder


class SharedEncoderActorCritic(eqx.Module):
    """Actor and critic whose bodies read the features of one encoder, which both losses train.

    The memories are those of ``actor_critic``. Raises ``UserError`` where the critic has observations of its own.
    """

    encoder: Callable[[PyTree], Array]
    actor_critic: ActorCritic

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
        if spec.privileged_space is not None:
            raise UserError(f"the critic of {spec.name} has observations of its own: share_encoder must be false")
        encoder_key, key = jax.random.split(key)
        space = spec.observation_space
        self.encoder = build_encoder(space, encoder_key, options.encoder, set_encoder=set_encoder)
        features = Box((count_features(self.encoder, space),), -math.inf, math.inf)
        spec = dataclasses.replace(spec, observation_space=features)
        self.actor_critic = ActorCritic(
            spec,
            hidden_sizes,
            key,
            memory=memory,
            options=dataclasses.replace(options, encoder=None),
            policy_head=policy_head,
            initializer=initializer,
        )

    def encode(self, views: View) -> View:
        """The views of a whole rollout with features in place of observations."""
        return View(jax.vmap(jax.vmap(self.encoder))(views.observation), views.action_mask)

    def init_memory(self, n: int) -> Any:
        """Initial recurrent states of actor and critic for ``n`` fresh episodes."""
        return self.actor_critic.init_memory(n)

    def action_distribution(self, memory: Any, view: View) -> tuple[Distribution, Any]:
        """Action distribution for one view, and the recurrent states after it."""
        return self.actor_critic.action_distribution(memory, View(self.encoder(view.observation), view.action_mask))

    def distributions(self, memory: Any, views: View, is_first: Bool[Array, "time row"]) -> Distribution:
        """Action distributions of a whole rollout, leaves ``[time, row, ...]``."""
        return self.actor_critic.distributions(memory, self.encode(views), is_first)

    def values(
        self, memory: Any, critic_observation: PyTree, is_first: Bool[Array, "time row"]
    ) -> tuple[Float[Array, "time row"], Any]:
        """State values of a whole rollout of observations, and the critic's recurrent state after each step."""
        return self.actor_critic.values(memory, jax.vmap(jax.vmap(self.encoder))(critic_observation), is_first)

    def next_values(self, memories: Any, next_critic_observation: PyTree) -> Float[Array, "time row"]:
        """Values of the true next observations, each with the recurrent state that leads to it."""
        return self.actor_critic.next_values(memories, jax.vmap(jax.vmap(self.encoder))(next_critic_observation))

    def evaluate(
        self, memory: Any, views: View, critic_observation: PyTree, is_first: Bool[Array, "time row"]
    ) -> tuple[Distribution, Float[Array, "time row"]]:
        """Action distributions and state values of a whole rollout, from one pass through the encoder."""
        views = self.encode(views)
        return self.actor_critic.evaluate(memory, views, views.observation, is_first)


class SharedBodyActorCritic(eqx.Module):
    """Actor and critic that share encoder, hidden layers and recurrent memory, with an output layer each.

    Raises ``UserError`` where the critic has observations of its own.
    """

    body: Body
    policy_head: PolicyHead
    value_head: Linear

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
        if spec.privileged_space is not None:
            raise UserError(f"the critic of {spec.name} has observations of its own: share_body must be false")

        init = functools.partial(make_initializer, initializer)
        body_key, head_key, value_key = jax.random.split(key, 3)
        self.body = options.build_body(
            spec.observation_space, hidden_sizes, body_key, init=init(2**0.5), memory=memory, set_encoder=set_encoder
        )
        self.policy_head = PolicyHead(
            spec.action_space, self.body.feature_size, head_key, init=init(0.01), continuous_head=policy_head
        )
        self.value_head = Linear(self.body.feature_size, 1, init(1.0), value_key)

    def init_memory(self, n: int) -> Any:
        """Initial recurrent states for ``n`` fresh episodes, and the actor's noise, if any."""
        noise = self.policy_head.init_noise(n)
        return (self.body.init_memory(n), *([] if noise is None else [noise]))

    def action_distribution(self, memory: Any, view: View) -> tuple[Distribution, Any]:
        """Action distribution for one view, and the recurrent state after it."""
        features, body_memory = self.body(memory[0], view.observation)
        return self.policy_head(features, view.action_mask, *memory[1:]), (body_memory, *memory[1:])

    def distributions(self, memory: Any, views: View, is_first: Bool[Array, "time row"]) -> Distribution:
        """Action distributions of a whole rollout, leaves ``[time, row, ...]``."""
        return self.evaluate(memory, views, views.observation, is_first)[0]

    def values(
        self, memory: Any, critic_observation: PyTree, is_first: Bool[Array, "time row"]
    ) -> tuple[Float[Array, "time row"], Any]:
        """State values of a whole rollout of observations, and the recurrent state after each step."""
        features, memories = self._unroll(memory, critic_observation, is_first)
        return jax.vmap(jax.vmap(self.value_head))(features)[..., 0], memories

    def next_values(self, memories: Any, next_critic_observation: PyTree) -> Float[Array, "time row"]:
        """Values of the true next observations, each with the recurrent state that leads to it."""

        def value(memory: Any, observation: PyTree) -> Float[Array, ""]:
            return self.value_head(self.body(memory, observation)[0])[0]

        return jax.vmap(jax.vmap(value))(memories, next_critic_observation)

    def evaluate(
        self, memory: Any, views: View, critic_observation: PyTree, is_first: Bool[Array, "time row"]
    ) -> tuple[Distribution, Float[Array, "time row"]]:
        """Action distributions and state values of a whole rollout, from one pass through the body."""
        features, _ = self._unroll(memory, views.observation, is_first)
        value = jax.vmap(jax.vmap(self.value_head))(features)[..., 0]
        return jax.vmap(jax.vmap(self.policy_head))(features, views.action_mask), value

    def _unroll(self, memory: Any, observations: PyTree, is_first: Bool[Array, "time row"]) -> tuple[Array, Any]:
        return unroll(self.body, self.body.resume_memory(memory[0]), observations, is_first)
