"""Deterministic actor of DDPG and TD3: a network whose ``tanh`` output is the canonical action.

Critics take an *encoded* action, through which gradients reach the actor. Here it is the action itself; see
:mod:`thespis.actors.deterministic` for discrete choices.

Gumbel-softmax actor: a stochastic policy over one discrete choice for deterministic policy gradients.

The policy samples a choice. Critics receive the sample one-hot encoded; gradients reach the logits by the
straight-through Gumbel-softmax (Jang et al., 2017). The interface is that of
:class:`thespis.actors.deterministic.DeterministicActor`.
"""

from __future__ import annotations

import abc
import math
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.actors.distributions import Categorical
from thespis.actors.policy_heads import require_bounded, vmap_act
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, Number, View
from thespis.core.spaces import Box, Discrete, random_action
from thespis.nets.body import DEFAULT_NETWORK, Body, NetworkOptions
from thespis.nets.mlp import Linear, uniform_fan_in


class DPGActor(eqx.Module):
    """Actor that is trained by the gradient of a critic, which sees its actions encoded."""

    @property
    @abc.abstractmethod
    def encoded_space(self) -> Box:
        """The action space that critics see."""

    @abc.abstractmethod
    def sample_encoded(self, view: View, key: Key[Array, ""]) -> Float[Array, "..."]:
        """The encoded action at one view, through which gradients reach the actor."""

    @abc.abstractmethod
    def greedy_encoded(self, view: View) -> Float[Array, "..."]:
        """The greedy action at one view, encoded."""

    @abc.abstractmethod
    def encode_action(self, action: Any) -> Float[Array, "..."]:
        """A stored action, as critics take it."""

    @abc.abstractmethod
    def decode_action(self, encoded: Float[Array, "..."]) -> Any:
        """The inverse of :meth:`encode_action`."""

    @abc.abstractmethod
    def build_policy(self, noise_std: Array, noise_theta: Array, random_actions: Bool[Array, ""], mode: Mode) -> Any:
        """The behaviour policy for ``mode``, with the functions of :class:`NoisyPolicy`."""


class DeterministicActor(DPGActor):
    """Deterministic policy ``tanh(linear(body(observation)))``, in the shape of the action box."""

    body: Body
    out: Linear
    space: Box = eqx.field(static=True)

    def __init__(
        self,
        spec: EnvSpec,
        hidden_sizes: tuple[int, ...],
        key: Key[Array, ""],
        *,
        options: NetworkOptions = DEFAULT_NETWORK,
    ):
        if not isinstance(spec.action_space, Box):
            raise UserError(
                f"a deterministic policy gradient needs one box of continuous actions, {spec.name} has "
                f"{spec.action_space}: use ppo, a2c, sac or dqn"
            )
        require_bounded(spec.action_space)
        self.space = spec.action_space
        body_key, out_key = jax.random.split(key)
        self.body = options.build_body(spec.observation_space, hidden_sizes, body_key, init=uniform_fan_in)
        self.out = Linear(self.body.feature_size, math.prod(self.space.shape), uniform_fan_in, out_key)

    def __call__(self, observation: PyTree) -> Float[Array, "*action"]:
        """The action for one observation, in ``[-1, 1]``."""
        features, _ = self.body((), observation)
        return jnp.tanh(self.out(features)).reshape(self.space.shape)

    @property
    def encoded_space(self) -> Box:
        """The action space that critics see: that of the actions themselves."""
        return self.space

    def sample_encoded(self, view: View, key: Key[Array, ""]) -> Float[Array, "*action"]:
        """The action; the key is not used."""
        return self(view.observation)

    def greedy_encoded(self, view: View) -> Float[Array, "*action"]:
        """The deterministic action of an encoded observation."""
        return self(view.observation)

    def encode_action(self, action: Float[Array, "*action"]) -> Float[Array, "*action"]:
        """A stored action, as critics take it."""
        return action

    def decode_action(self, encoded: Float[Array, "*action"]) -> Float[Array, "*action"]:
        """The inverse of :meth:`encode_action`."""
        return encoded

    def build_policy(
        self, noise_std: Array, noise_theta: Array, random_actions: Bool[Array, ""], mode: Mode
    ) -> NoisyPolicy:
        """The policy for ``mode``: it adds noise in ``EXPLORE``."""
        return NoisyPolicy(self, noise_std, noise_theta, random_actions, mode)


@runtime_checkable
class BoxActor(Protocol):
    """Interface of deterministic actors: one observation to one action in a box."""

    @property
    def space(self) -> Box:
        """The action space of the policy."""
        ...

    def __call__(self, observation: PyTree) -> Float[Array, "*action"]:
        """The action for one observation, in ``[-1, 1]``."""
        ...


class NoisyPolicy(eqx.Module):
    """Behaviour policy of a deterministic actor: additive noise, and uniform actions before the first update.

    The noise follows ``n' = (1 - noise_theta) n + noise_std * normal``. ``noise_theta`` 1 is white noise; smaller
    values make it an Ornstein-Uhlenbeck process, which pushes one way for about ``1 / noise_theta`` steps.
    """

    actor: BoxActor
    noise_std: Float[Array, ""]
    noise_theta: Float[Array, ""]
    random_actions: Bool[Array, ""]
    mode: Mode = eqx.field(static=True)

    def init_memory(self, n: int) -> Float[Array, "row *action"]:
        """Zero noise for ``n`` fresh episodes."""
        return jnp.zeros((n, *self.actor.space.shape))

    def __call__(
        self, noise: Float[Array, "*action"], view: View, key: Key[Array, ""]
    ) -> tuple[Float[Array, "*action"], Float[Array, "*action"]]:
        """One action, and the noise as the new memory.

        The actor's action outside ``EXPLORE``; with noise, clipped to ``[-1, 1]``, in ``EXPLORE``; uniform while
        ``random_actions`` is set.
        """
        action = self.actor(view.observation)
        if self.mode is not Mode.EXPLORE:
            return action, noise
        noise_key, random_key = jax.random.split(key)
        noise = (1.0 - self.noise_theta) * noise + self.noise_std * jax.random.normal(noise_key, action.shape)
        uniform = random_action(self.actor.space, random_key)
        return jnp.where(self.random_actions, uniform, jnp.clip(action + noise, -1.0, 1.0)), noise


class DPGMethod(eqx.Module):
    """Base of methods with a deterministic actor: settings of exploration and how it acts."""

    exploration_noise: Number = 0.1
    """Standard deviation of the noise added at each step, in canonical units: half the width of the bounds."""
    noise_theta: Number = 1.0
    """Share of the noise that is forgotten at each step: 1 for white noise, less for Ornstein-Uhlenbeck."""

    def exploration_policy(self, actor: Any, num_updates: Int[Array, ""], mode: Mode) -> Any:
        """The behaviour policy of ``actor`` after ``num_updates`` updates, in ``mode``."""
        noise_std, noise_theta = (
            jnp.asarray(self.exploration_noise, "float32"),
            jnp.asarray(self.noise_theta, "float32"),
        )
        return actor.build_policy(noise_std, noise_theta, num_updates == 0, mode)

    def init_memory(self, policy: Any, n: int) -> Any:
        """The memory of ``n`` fresh episodes: the exploration noise, if there is any."""
        return policy.init_memory(n)

    def act(self, policy: Any, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """One action per row; the memory is the exploration noise."""
        return vmap_act(lambda noise, view, key: (*policy(noise, view, key), ()), memory, view, key)


class GumbelSoftmaxActor(DPGActor):
    """Categorical policy ``softmax(linear(body(observation)))``, trained through one-hot samples."""

    body: Body
    out: Linear
    space: Discrete = eqx.field(static=True)

    def __init__(self, spec: EnvSpec, hidden_sizes: tuple[int, ...], key: Key[Array, ""]):
        assert isinstance(spec.action_space, Discrete)
        self.space = spec.action_space
        body_key, out_key = jax.random.split(key)
        self.body = Body(spec.observation_space, hidden_sizes, body_key, init=uniform_fan_in, activation=jax.nn.relu)
        self.out = Linear(self.body.feature_size, self.space.n, uniform_fan_in, out_key)

    def __call__(self, view: View) -> Categorical:
        """The distribution over choices for one view."""
        return Categorical(self.out(self.body((), view.observation)[0]), view.action_mask)

    @property
    def encoded_space(self) -> Box:
        """The action space that critics see: one-hot vectors."""
        return Box((self.space.n,), 0.0, 1.0)

    def sample_encoded(self, view: View, key: Key[Array, ""]) -> Float[Array, " n"]:
        """A sampled choice, one-hot, with the gradient of the softmax."""
        return self(view).straight_through(key)

    def greedy_encoded(self, view: View) -> Float[Array, " n"]:
        """The most probable choice, one-hot."""
        return self.encode_action(self(view).mode())

    def encode_action(self, action: Int[Array, ""]) -> Float[Array, " n"]:
        """One-hot encoding of a stored choice, as critics take it."""
        return jax.nn.one_hot(action, self.space.n)

    def decode_action(self, encoded: Float[Array, " n"]) -> Int[Array, ""]:
        """The inverse of :meth:`encode_action`."""
        return jnp.argmax(encoded).astype("int32")

    def build_policy(
        self, noise_std: Array, noise_theta: Array, random_actions: Bool[Array, ""], mode: Mode
    ) -> GumbelSoftmaxPolicy:
        """The policy for ``mode``. Exploration is sampling; the noise parameters are ignored."""
        return GumbelSoftmaxPolicy(self, random_actions, mode)


class GumbelSoftmaxPolicy(eqx.Module):
    """Behaviour policy of a :class:`GumbelSoftmaxActor`; ``random_actions`` is true until the first update."""

    actor: GumbelSoftmaxActor
    random_actions: Bool[Array, ""]
    mode: Mode = eqx.field(static=True)

    def init_memory(self, n: int) -> tuple[()]:
        """An empty memory: the policy is memoryless."""
        return ()

    def __call__(self, memory: tuple[()], view: View, key: Key[Array, ""]) -> tuple[Int[Array, ""], tuple[()]]:
        """One choice: the most probable (``EXPLOIT``), a sample (``SAMPLE``, ``EXPLORE``), or a uniform legal one if
        ``random_actions`` is set in ``EXPLORE``.
        """
        distribution = self.actor(view)
        if self.mode is Mode.EXPLOIT:
            return distribution.mode(), memory
        draw_key, random_key = jax.random.split(key)
        sampled = distribution.sample(draw_key)
        if self.mode is Mode.SAMPLE:
            return sampled, memory
        return jnp.where(
            self.random_actions, random_action(self.actor.space, random_key, view.action_mask), sampled
        ), memory


def build_dpg_actor(spec: EnvSpec, hidden_sizes: tuple[int, ...], key: Key[Array, ""]) -> DPGActor:
    """Build the DPG actor for an action space.

    Raises ``UserError`` unless that is one bounded box or discrete choice.
    """
    return (GumbelSoftmaxActor if isinstance(spec.action_space, Discrete) else DeterministicActor)(
        spec, hidden_sizes, key
    )
