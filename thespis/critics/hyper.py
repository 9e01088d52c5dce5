"""A critic whose weights on the action are made from the observation (Sarafian et al., 2021).

An observation chooses a small net of one hidden layer, and that net values actions: ``Q(s, a) = f_w(s)(a)``. So the
slope of a value along the action, which is all that an actor learns from, is a function of its own of the state.
"""

from __future__ import annotations

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.core.spaces import Box
from thespis.critics.values import ActionValue, action_value, for_critics
from thespis.nets.body import Encoder, flatten
from thespis.nets.mlp import Initialiser, Linear


def _within(bound: float) -> Initialiser:
    return lambda key, shape: jax.random.uniform(key, shape, minval=-bound, maxval=bound)


def _half_fan_in(key: Key[Array, ""], shape: tuple[int, int]) -> Float[Array, "in out"]:
    return _within(0.5 * shape[0] ** -0.5)(key, shape)


class Residual(eqx.Module):
    """``x + W relu(V relu(x))``."""

    layers: tuple[Linear, ...]

    def __init__(self, width: int, key: Key[Array, ""]):
        self.layers = tuple(Linear(width, width, _half_fan_in, k) for k in jax.random.split(key))

    def __call__(self, x: Float[Array, " width"]) -> Float[Array, " width"]:
        """One vector in, one vector out."""
        return x + functools.reduce(lambda x, layer: layer(jax.nn.relu(x)), self.layers, x)


class Made(eqx.Module):
    """A layer whose weights, biases and gains are linear in what it is made from."""

    weight: Linear
    bias: Linear
    gain: Linear
    shape: tuple[int, int] = eqx.field(static=True)

    def __init__(self, size: int, shape: tuple[int, int], bound: float, key: Key[Array, ""]):
        init, keys, self.shape = _within(bound), jax.random.split(key, 3), shape
        sizes = math.prod(shape), shape[1], shape[1]
        self.weight, self.bias, self.gain = (Linear(size, n, init, k) for n, k in zip(sizes, keys, strict=True))

    def __call__(self, maker: Float[Array, " size"], x: Float[Array, " in"]) -> Float[Array, " out"]:
        """One vector through the layer that ``maker`` makes."""
        return (x @ self.weight(maker).reshape(self.shape)) * (1.0 + self.gain(maker)) + self.bias(maker)


class HyperValue(eqx.Module):
    """``Q(o, a)`` of a continuous action by a net whose weights the observation makes."""

    encoder: Encoder
    steps: tuple[tuple[Linear, Residual, Residual], ...]
    layers: tuple[Made, Made]
    space: Box = eqx.field(static=True)

    def __init__(self, spec: EnvSpec, widths: tuple[int, ...], units: int, key: Key[Array, ""]):
        if not isinstance(spec.action, Box):
            raise UserError(f"a hypernetwork values a box of actions, {spec.name} has {spec.action}: use critic=Joined")
        encoder_key, step_key, *keys = jax.random.split(key, 4)
        self.space, self.encoder = spec.action, Encoder(spec.observation, encoder_key)
        sizes = (self.encoder.size, *widths)
        given = zip(sizes[:-1], sizes[1:], jax.random.split(step_key, (len(widths), 3)), strict=True)
        self.steps = tuple((Linear(a, b, _half_fan_in, i), Residual(b, j), Residual(b, k)) for a, b, (i, j, k) in given)
        actions = flatten(self.space, jnp.zeros(self.space.shape)).shape[0]
        self.layers = Made(widths[-1], (actions, units), 0.05, keys[0]), Made(widths[-1], (units, 1), 0.008, keys[1])

    def __call__(self, observation: PyTree, actions: Float[Array, "k *action"]) -> Float[Array, " k"]:
        """The values of ``k`` actions for one observation."""
        maker = self.encoder(observation)
        for step in self.steps:
            maker = functools.reduce(lambda x, part: part(x), step, maker)
        first, last = self.layers

        def one(action):
            return last(maker, jax.nn.relu(first(maker, flatten(self.space, action))))[0]

        return jax.vmap(one)(actions)


class Joined(eqx.Module):
    """Observation and action enter one net side by side."""

    hidden: tuple[int, ...] = eqx.field(static=True, default=())
    """Units of each hidden layer; none: as the method has it."""

    def build(self, spec: EnvSpec, hidden: tuple[int, ...], key: Key[Array, ""]) -> ActionValue:
        """A fresh critic."""
        return action_value(spec, self.hidden or hidden, key)


class Hypernetwork(eqx.Module):
    """The observation makes a net for the action: see :class:`HyperValue`; ``hidden`` of the method is the actor's."""

    widths: tuple[int, ...] = eqx.field(static=True, default=(256, 512, 1024))
    """Units of what reads the observation; two residual blocks of each."""
    units: int = eqx.field(static=True, default=256)
    """Hidden units of the net that is made."""

    def build(self, spec: EnvSpec, hidden: tuple[int, ...], key: Key[Array, ""]) -> ActionValue:
        """A fresh critic. Raises ``UserError`` for other actions than a box."""
        return HyperValue(for_critics(spec), self.widths, self.units, key)


CriticNet = Joined | Hypernetwork
