r"""Normalising-flow actor that is its own critic: an energy-based policy of additive coupling flows.

A normal sample with standard deviations :math:`\sigma(s)` passes additive couplings and a ``tanh``. The log-density of
the resulting action splits into a part that depends on the action and a part that does not,

.. math:: \log \pi(a|s) = E(s, a) - Z(s), \qquad
          E = -\tfrac12 |z / \sigma|^2 - \log |\det \tanh'|, \qquad Z = \tfrac d2 \log 2\pi + \sum \log \sigma

so that :math:`Q = \alpha (E + b)` and :math:`V = \alpha (Z + b)` are a soft action value and its exact soft value,
:math:`V = \alpha \log \int \exp(Q / \alpha)`, for any reward shift :math:`b(s)`. There are several shifts; all share
one policy.

An additive coupling preserves volume and has a cheap inverse:

.. math:: y = z + (1 - m) \odot t(m \odot z, c)

The mask :math:`m` says which entries pass unchanged; what is added to the others depends on these and on a context
:math:`c`, so that the inverse can subtract it.

Source: Chao et al., 2024 (the policy); Dinh et al., 2015 (additive coupling flows).
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.actors.policy_heads import require_bounded
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, View
from thespis.core.spaces import Box, random_action
from thespis.nets.body import Encoder
from thespis.nets.mlp import MLP, Linear, orthogonal, uniform_fan_in


class TranslationNetwork(eqx.Module):
    """Translation network of a coupling: hidden layers with layer normalisation and swish, and a linear output."""

    layers: tuple[Linear, ...]
    norms: tuple[eqx.nn.LayerNorm, ...]
    out: Linear

    def __init__(self, in_size: int, hidden_sizes: tuple[int, ...], out_size: int, key: Key[Array, ""]):
        sizes, keys = (in_size, *hidden_sizes), jax.random.split(key, len(hidden_sizes) + 1)
        init = orthogonal(1.0)
        self.layers = tuple(Linear(a, b, init, k) for a, b, k in zip(sizes[:-1], sizes[1:], keys, strict=False))
        self.norms = tuple(eqx.nn.LayerNorm(size) for size in hidden_sizes)
        self.out = Linear(sizes[-1], out_size, init, keys[-1])

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        """One vector in, one vector out."""
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = jax.nn.swish(norm(layer(x)))
        return self.out(x)


class AdditiveCouplingFlow(eqx.Module):
    """``num_pairs`` pairs of additive couplings: the first of a pair passes even entries unchanged, the second odd.

    A vector of length 1 passes the first coupling unchanged; the second shifts it by a function of the context.
    """

    translations: tuple[TranslationNetwork, ...]

    def __init__(
        self, size: int, context_size: int, num_pairs: int, hidden_sizes: tuple[int, ...], key: Key[Array, ""]
    ):
        keys = jax.random.split(key, 2 * num_pairs)
        self.translations = tuple(TranslationNetwork(size + context_size, hidden_sizes, size, k) for k in keys)

    def __call__(self, z: Float[Array, " size"], context: Float[Array, " context"]) -> Float[Array, " size"]:
        """Apply all couplings; the determinant of the Jacobian is 1."""
        for i, shift in enumerate(self.translations):
            z = z + self._translation(i, shift, z, context)
        return z

    def inverse(self, y: Float[Array, " size"], context: Float[Array, " context"]) -> Float[Array, " size"]:
        """Invert all couplings of the flow, last first."""
        for i, shift in reversed(list(enumerate(self.translations))):
            y = y - self._translation(i, shift, y, context)
        return y

    def _translation(self, i: int, translation: TranslationNetwork, z: Array, context: Array) -> Array:
        mask = (jnp.arange(z.shape[0]) % 2 == i % 2).astype(z.dtype)
        return (1.0 - mask) * translation(jnp.concatenate([mask * z, context]))


class FlowDistribution(eqx.Module):
    """Action distribution of one state and its energy function; actions may have any shape."""

    flow: AdditiveCouplingFlow
    context: Float[Array, " context"]
    log_std: Float[Array, " size"]
    reward_shifts: Float[Array, " reward_shifts"]
    shape: tuple[int, ...] = eqx.field(static=True)

    def sample(self, key: Key[Array, ""]) -> Float[Array, "*shape"]:
        """One sample from the distribution."""
        return self._forward(jnp.exp(self.log_std) * jax.random.normal(key, self.log_std.shape))

    def mode(self) -> Float[Array, "*shape"]:
        """The image of the normal's mean: the most probable action apart from the effect of the ``tanh``."""
        return self._forward(jnp.zeros_like(self.log_std))

    def log_prob(self, action: Float[Array, "*shape"]) -> Float[Array, ""]:
        """Log-density of an action; actions at the bounds are moved inside by 1e-5."""
        return self.energy(action) - self.log_normalizer()

    def energy(self, action: Float[Array, "*shape"]) -> Float[Array, ""]:
        """The part of the log-density that depends on the action: ``E`` in the module's docstring."""
        y = jnp.arctanh(jnp.clip(action.ravel(), -1 + 1e-5, 1 - 1e-5))
        z = self.flow.inverse(y, self.context)
        # log(1 - tanh(y)^2) = 2 (log 2 - y - softplus(-2y)), which does not lose digits for large |y|
        squash = 2.0 * (math.log(2.0) - y - jax.nn.softplus(-2.0 * y))
        return -jnp.sum(0.5 * jnp.square(z * jnp.exp(-self.log_std)) + squash)

    def log_normalizer(self) -> Float[Array, ""]:
        """The logarithm of the integral of ``exp(energy)``: ``Z`` in the module's docstring."""
        return jnp.sum(self.log_std + 0.5 * math.log(2 * math.pi))

    def action_values(self, action: Float[Array, "*shape"]) -> Float[Array, " reward_shifts"]:
        """Soft action values divided by alpha, one per reward shift."""
        return self.energy(action) + self.reward_shifts

    def state_values(self) -> Float[Array, " reward_shifts"]:
        """Soft state values divided by alpha, one per reward shift."""
        return self.log_normalizer() + self.reward_shifts

    def _forward(self, z: Array) -> Array:
        return jnp.tanh(self.flow(z, self.context)).reshape(self.shape)


class FlowActor(eqx.Module):
    """Conditional flow over one bounded box of actions.

    Log standard deviations lie between ``log_std_min`` and ``log_std_max``.
    """

    encoder: Encoder
    flow: AdditiveCouplingFlow
    log_std_network: tuple[MLP, Linear]
    reward_shifts: tuple[MLP, Linear]
    space: Box = eqx.field(static=True)
    log_std_min: float = eqx.field(static=True)
    log_std_max: float = eqx.field(static=True)

    def __init__(
        self,
        spec: EnvSpec,
        key: Key[Array, ""],
        *,
        num_coupling_pairs: int,
        num_reward_shifts: int,
        hidden_sizes: tuple[int, ...],
        shift_hidden_sizes: tuple[int, ...],
        log_std_range: tuple[float, float],
    ):
        if not isinstance(spec.action_space, Box):
            raise UserError(
                f"a flow needs one box of continuous actions, {spec.name} has {spec.action_space}: use sac or ppo"
            )
        require_bounded(spec.action_space)
        encoder_key, flow_key, log_std_key, shift_key = jax.random.split(key, 4)
        self.space, (self.log_std_min, self.log_std_max) = spec.action_space, log_std_range
        self.encoder = Encoder(spec.observation_space, encoder_key)
        size, context = math.prod(self.space.shape), self.encoder.feature_size
        self.flow = AdditiveCouplingFlow(size, context, num_coupling_pairs, hidden_sizes, flow_key)
        self.log_std_network = _zero_output_mlp(context, hidden_sizes, size, log_std_key)
        networks = jax.vmap(lambda k: _zero_output_mlp(context, shift_hidden_sizes, 1, k))(
            jax.random.split(shift_key, num_reward_shifts)
        )
        self.reward_shifts = networks

    def __call__(self, view: View) -> FlowDistribution:
        """The action distribution in one state."""
        context = self.encoder(view.observation)
        scaled = jnp.tanh(_apply_mlp(self.log_std_network, context))
        log_std = self.log_std_min + 0.5 * (self.log_std_max - self.log_std_min) * (scaled + 1.0)
        shifts = jax.vmap(lambda network: _apply_mlp(network, context)[0])(self.reward_shifts)
        return FlowDistribution(self.flow, context, log_std, shifts, self.space.shape)

    def initial_action(self, distribution: FlowDistribution, view: View, key: Key[Array, ""]) -> PyTree:
        """First action: drawn uniformly from the box."""
        return random_action(self.space, key, view.action_mask)


def _zero_output_mlp(
    in_size: int, hidden_sizes: tuple[int, ...], out_size: int, key: Key[Array, ""]
) -> tuple[MLP, Linear]:
    """An MLP with swish activations whose output is initially 0."""
    body = MLP(in_size, hidden_sizes, uniform_fan_in, jax.nn.swish, key)
    return body, Linear(hidden_sizes[-1] if hidden_sizes else in_size, out_size, jax.nn.initializers.zeros, key)


def _apply_mlp(net: tuple[MLP, Linear], x: Float[Array, " in"]) -> Float[Array, " out"]:
    return net[1](net[0](x))
