"""Hypernetwork critic: the observation generates the weights of a small network of the action (Sarafian et al., 2021).

The network has one hidden layer and values actions: ``Q(s, a) = f_w(s)(a)``. So the gradient of a value with respect to
the action, which is all that an actor learns from, is a separate function of the state.
"""

from __future__ import annotations

import abc
import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.core.spaces import Box
from thespis.critics.value_functions import QFunction, build_q_function, critic_spec
from thespis.nets.body import DEFAULT_NETWORK, Encoder, NetworkOptions, flatten
from thespis.nets.mlp import Initializer, Linear


def _uniform_init(bound: float) -> Initializer:
    return lambda key, shape: jax.random.uniform(key, shape, minval=-bound, maxval=bound)


def _half_uniform_fan_in(key: Key[Array, ""], shape: tuple[int, int]) -> Float[Array, "in out"]:
    return _uniform_init(0.5 * shape[0] ** -0.5)(key, shape)


class ResidualMLPBlock(eqx.Module):
    """Residual block ``x + W relu(V relu(x))``."""

    layers: tuple[Linear, ...]

    def __init__(self, size: int, key: Key[Array, ""]):
        self.layers = tuple(Linear(size, size, _half_uniform_fan_in, k) for k in jax.random.split(key))

    def __call__(self, x: Float[Array, " width"]) -> Float[Array, " width"]:
        """One vector in, one vector out."""
        return x + functools.reduce(lambda x, layer: layer(jax.nn.relu(x)), self.layers, x)


class HyperLinear(eqx.Module):
    """Linear layer whose weights, biases and gains are linear functions of a context vector."""

    weight: Linear
    bias: Linear
    gain: Linear
    shape: tuple[int, int] = eqx.field(static=True)

    def __init__(self, context_size: int, shape: tuple[int, int], init_bound: float, key: Key[Array, ""]):
        initializer, keys, self.shape = _uniform_init(init_bound), jax.random.split(key, 3), shape
        sizes = math.prod(shape), shape[1], shape[1]
        self.weight, self.bias, self.gain = (
            Linear(context_size, n, initializer, k) for n, k in zip(sizes, keys, strict=True)
        )

    def __call__(self, context: Float[Array, " size"], x: Float[Array, " in"]) -> Float[Array, " out"]:
        """Apply the layer that ``context`` generates to one vector."""
        return (x @ self.weight(context).reshape(self.shape)) * (1.0 + self.gain(context)) + self.bias(context)


class HypernetworkQ(eqx.Module):
    """Q-network ``Q(o, a)`` of a continuous action whose weights are generated from the observation."""

    encoder: Encoder
    blocks: tuple[tuple[Linear, ResidualMLPBlock, ResidualMLPBlock], ...]
    hyper_layers: tuple[HyperLinear, HyperLinear]
    space: Box = eqx.field(static=True)

    def __init__(
        self,
        spec: EnvSpec,
        hypernet_sizes: tuple[int, ...],
        hidden_size: int,
        key: Key[Array, ""],
        init_scale: float = 1.0,
    ):
        if not isinstance(spec.action_space, Box):
            raise UserError(
                f"a hypernetwork critic needs a box of actions, {spec.name} has {spec.action_space}: use "
                "critic=ConcatCritic"
            )
        encoder_key, step_key, *keys = jax.random.split(key, 4)
        self.space, self.encoder = spec.action_space, Encoder(spec.observation_space, encoder_key)
        sizes = (self.encoder.feature_size, *hypernet_sizes)
        block_args = zip(sizes[:-1], sizes[1:], jax.random.split(step_key, (len(hypernet_sizes), 3)), strict=True)
        self.blocks = tuple(
            (Linear(a, b, _half_uniform_fan_in, i), ResidualMLPBlock(b, j), ResidualMLPBlock(b, k))
            for a, b, (i, j, k) in block_args
        )
        actions = flatten(self.space, jnp.zeros(self.space.shape)).shape[0]
        self.hyper_layers = (
            HyperLinear(hypernet_sizes[-1], (actions, hidden_size), 0.05 * init_scale, keys[0]),
            HyperLinear(hypernet_sizes[-1], (hidden_size, 1), 0.008 * init_scale, keys[1]),
        )

    def __call__(self, observation: PyTree, actions: Float[Array, "k *action"]) -> Float[Array, " k"]:
        """Q-values of ``k`` actions for one observation."""
        context = self.encoder(observation)
        for block in self.blocks:
            context = functools.reduce(lambda x, part: part(x), block, context)
        first, last = self.hyper_layers

        def single_value(action):
            return last(context, jax.nn.relu(first(context, flatten(self.space, action))))[0]

        return jax.vmap(single_value)(actions)


class CriticArchitecture(eqx.Module):
    """Slot: the network of a critic ``Q(o, a)`` of continuous actions."""

    @abc.abstractmethod
    def build(
        self,
        spec: EnvSpec,
        hidden_sizes: tuple[int, ...],
        key: Key[Array, ""],
        options: NetworkOptions = DEFAULT_NETWORK,
    ) -> QFunction:
        """A network with fresh parameters: one observation and ``k`` actions to ``k`` values.

        ``hidden_sizes`` and ``options`` (encoder, activation, layer norm) are the method's settings.
        """


class ConcatCritic(CriticArchitecture):
    """Critic with concatenated inputs: observation and action enter one network together."""

    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=())
    """Units of each hidden layer; empty: those of the method."""

    def build(
        self,
        spec: EnvSpec,
        hidden_sizes: tuple[int, ...],
        key: Key[Array, ""],
        options: NetworkOptions = DEFAULT_NETWORK,
    ) -> QFunction:
        """Build a critic with fresh parameters."""
        return build_q_function(spec, self.hidden_sizes or hidden_sizes, key, options)


class HypernetworkCritic(CriticArchitecture):
    """Hypernetwork critic, see :class:`HypernetworkQ`; ``hidden_sizes`` of the method is then the actor's only."""

    hypernet_sizes: tuple[int, ...] = eqx.field(static=True, default=(256, 512, 1024))
    """Units of the hypernetwork on the observation, with two residual blocks of each size."""
    hidden_size: int = eqx.field(static=True, default=256)
    """Hidden units of the generated network."""
    init_scale: float = eqx.field(static=True, default=1.0)
    """Factor of the initial weights that generate the network, which are uniform within 0.05 and, for its last layer,
    0.008. They suit 1,024 units; with ``n`` in the last of ``hypernet_sizes``, ``sqrt(1024 / n)`` generates weights of
    the same variance from features of the same size."""

    def build(
        self,
        spec: EnvSpec,
        hidden_sizes: tuple[int, ...],
        key: Key[Array, ""],
        options: NetworkOptions = DEFAULT_NETWORK,
    ) -> QFunction:
        """A fresh critic. Raises ``UserError`` unless the action is a box and all options are the usual ones."""
        if options != DEFAULT_NETWORK:
            raise UserError("HypernetworkCritic has networks of its own: leave activation, encoder and layer_norm out")
        return HypernetworkQ(critic_spec(spec), self.hypernet_sizes, self.hidden_size, key, self.init_scale)
