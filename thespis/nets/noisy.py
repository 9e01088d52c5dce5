r"""Noisy networks: linear layers with learned Gaussian noise, in place of epsilon-greedy exploration.

.. math:: y = x (W + \Sigma \odot \epsilon^W) + b + \sigma \odot \epsilon^b, \quad
    \epsilon^W_{ij} = f(\epsilon_i) f(\epsilon_j), \; \epsilon^b_j = f(\epsilon_j), \;
    f(x) = \operatorname{sign}(x) \sqrt{|x|}

with one standard normal number for each input and each output (factorised noise). A network without drawn noise is the
mean network: it plays greedily. :func:`draw_noise` gives the network with fresh noise, through which gradients reach
means and standard deviations alike.

Source: Fortunato et al., 2018, sections 3 and 3.2.

Differs: biases begin at 0 (theirs at random, as weights do); every row of an acting batch has noise of its own; weight
matrices with noise are never formed, as a product with factorised noise is that of scaled vectors.
"""

from __future__ import annotations

import abc
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.records import Number
from thespis.nets.mlp import Linear

Network = TypeVar("Network", bound=PyTree)


class NoisyLayer(eqx.Module):
    """A layer whose parameters are random: called as it is, it uses their means. Abstract."""

    @abc.abstractmethod
    def draw(self, key: Key[Array, ""]) -> eqx.Module:
        """The layer with fresh noise. Parameters of an ensemble have a leading axis, and members noise of their own."""


class NoisyLinear(NoisyLayer):
    """Linear layer with Gaussian parameters; called without drawn noise, it uses their means.

    Standard deviations may become negative: only their magnitude matters.
    """

    mean: Linear
    std: Linear

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        """One vector in, one vector out, by the mean parameters."""
        return self.mean(x)

    @property
    def weight(self) -> Float[Array, "in out"]:
        """Mean weights."""
        return self.mean.weight

    @property
    def bias(self) -> Float[Array, " out"]:
        """Mean biases."""
        return self.mean.bias

    def draw(self, key: Key[Array, ""]) -> DrawnLinear:
        """The layer with factorised noise."""
        in_key, out_key = jax.random.split(key)
        shape = self.mean.weight.shape
        in_noise = scale_noise(jax.random.normal(in_key, shape[:-1]))
        return DrawnLinear(
            self.mean, self.std, in_noise, scale_noise(jax.random.normal(out_key, (*shape[:-2], shape[-1])))
        )


class DrawnLinear(eqx.Module):
    """A :class:`NoisyLinear` with drawn noise, one number (after ``f``) for each input and each output."""

    mean: Linear
    std: Linear
    in_noise: Float[Array, "*members in"]
    out_noise: Float[Array, "*members out"]

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        """One vector in, one vector out, by the mean parameters plus noise."""
        return self.mean(x) + self.out_noise * ((x * self.in_noise) @ self.std.weight + self.std.bias)

    @property
    def bias(self) -> Float[Array, " out"]:
        """Mean biases."""
        return self.mean.bias


class NetworkNoise(eqx.Module):
    """Slot: which layers of a network are random, and how, to explore in place of random actions."""

    @abc.abstractmethod
    def add_noise(self, network: Network) -> Network:
        """The network with a :class:`NoisyLayer` in place of layers that are to be random; means as they were."""


class NoisyNetwork(NetworkNoise):
    """Noisy network (Fortunato et al., 2018): every linear layer has learned noise.

    As a setting, it takes the place of epsilon-greedy exploration: noise is drawn for every row and step while acting
    (greedy play has none), and once per update, independently for the loss, the target and the choice of next actions.
    """

    initial_std: Number = 0.5
    """Initial standard deviation of the noise, divided by the square root of a layer's inputs (the paper's sigma_0)."""

    def add_noise(self, network: Network) -> Network:
        """The network with a :class:`NoisyLinear` in place of every linear layer, with the same means."""

        def leaf(layer):
            if not isinstance(layer, Linear):
                return layer
            initial = self.initial_std / layer.weight.shape[-2] ** 0.5
            return NoisyLinear(layer, jax.tree.map(lambda x: jnp.full_like(x, initial), layer))

        return jax.tree.map(leaf, network, is_leaf=lambda x: isinstance(x, Linear))


def has_noise(network: PyTree) -> bool:
    """Whether a network has noisy layers."""
    return any(isinstance(x, NoisyLayer) for x in jax.tree.leaves(network, is_leaf=_is_noisy))


def draw_noise(network: Network, key: Key[Array, ""]) -> Network:
    """The network with fresh noise in all its noisy layers; one without such layers is returned as it is.

    Members of an ensemble, whose parameters have a leading axis, get noise of their own.
    """
    layers, tree = jax.tree.flatten(network, is_leaf=_is_noisy)
    noisy = [i for i, layer in enumerate(layers) if isinstance(layer, NoisyLayer)]
    if not noisy:
        return network
    for i, layer_key in zip(noisy, jax.random.split(key, len(noisy)), strict=True):
        layers[i] = layers[i].draw(layer_key)
    return jax.tree.unflatten(tree, layers)


def scale_noise(x: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
    """The function ``f(x) = sign(x) sqrt(|x|)`` of factorised noise."""
    return jnp.sign(x) * jnp.sqrt(jnp.abs(x))


def _is_noisy(x: PyTree) -> bool:
    return isinstance(x, NoisyLayer)
