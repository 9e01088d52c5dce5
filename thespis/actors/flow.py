r"""An actor that is its own critic: a normalising flow over actions, read as an energy (Chao et al., 2024).

A normal sample with deviations :math:`\sigma(s)` passes additive couplings and a ``tanh``. The log-density of the
action that comes out splits into what depends on the action and what does not,

.. math:: \log \pi(a|s) = E(s, a) - Z(s), \qquad
          E = -\tfrac12 |z / \sigma|^2 - \log |\det \tanh'|, \qquad Z = \tfrac d2 \log 2\pi + \sum \log \sigma

so that :math:`Q = \alpha (E + b)` and :math:`V = \alpha (Z + b)` are a soft action value and its exact soft value,
:math:`V = \alpha \log \int \exp(Q / \alpha)`, for any shift :math:`b(s)`. There are several shifts, and all share one
policy.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.actors.heads import require_bounded
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, View
from thespis.core.spaces import Box, random_action
from thespis.nets.body import Encoder
from thespis.nets.coupling import Couplings
from thespis.nets.mlp import MLP, Linear, uniform_fan_in


class Flowing(eqx.Module):
    """The distribution of actions in one state, and the energies that it is made of; actions have any shape."""

    couplings: Couplings
    context: Float[Array, " context"]
    log_std: Float[Array, " size"]
    shifts: Float[Array, " shifts"]
    shape: tuple[int, ...] = eqx.field(static=True)

    def sample(self, key: Key[Array, ""]) -> Float[Array, "*shape"]:
        """One draw."""
        return self._through(jnp.exp(self.log_std) * jax.random.normal(key, self.log_std.shape))

    def mode(self) -> Float[Array, "*shape"]:
        """What the mean of the normal becomes: the most probable action but for the ``tanh``."""
        return self._through(jnp.zeros_like(self.log_std))

    def log_prob(self, action: Float[Array, "*shape"]) -> Float[Array, ""]:
        """Log-density of an action; those at the bounds are moved inside a little."""
        return self.energy(action) - self.log_normaliser()

    def energy(self, action: Float[Array, "*shape"]) -> Float[Array, ""]:
        """The part of the log-density that depends on the action, ``E`` above."""
        y = jnp.arctanh(jnp.clip(action.ravel(), -1 + 1e-5, 1 - 1e-5))
        z = self.couplings.inverse(y, self.context)
        # log(1 - tanh(y)^2) = 2 (log 2 - y - softplus(-2y)), which does not lose digits for large |y|
        squash = 2.0 * (math.log(2.0) - y - jax.nn.softplus(-2.0 * y))
        return -jnp.sum(0.5 * jnp.square(z * jnp.exp(-self.log_std)) + squash)

    def log_normaliser(self) -> Float[Array, ""]:
        """The logarithm of the integral of ``exp(energy)``, ``Z`` above."""
        return jnp.sum(self.log_std + 0.5 * math.log(2 * math.pi))

    def action_values(self, action: Float[Array, "*shape"]) -> Float[Array, " shifts"]:
        """Soft action values by every shift, over alpha."""
        return self.energy(action) + self.shifts

    def values(self) -> Float[Array, " shifts"]:
        """Soft values by every shift, over alpha."""
        return self.log_normaliser() + self.shifts

    def _through(self, z: Array) -> Array:
        return jnp.tanh(self.couplings(z, self.context)).reshape(self.shape)


class FlowActor(eqx.Module):
    """A flow over one bounded box of actions; log deviations are between ``lowest`` and ``highest``."""

    encoder: Encoder
    couplings: Couplings
    spread: tuple[MLP, Linear]
    shifts: tuple[MLP, Linear]
    space: Box = eqx.field(static=True)
    lowest: float = eqx.field(static=True)
    highest: float = eqx.field(static=True)

    def __init__(
        self,
        spec: EnvSpec,
        key: Key[Array, ""],
        *,
        pairs: int,
        shifts: int,
        hidden: tuple[int, ...],
        shift_hidden: tuple[int, ...],
        log_std: tuple[float, float],
    ):
        if not isinstance(spec.action, Box):
            raise UserError(
                f"a flow needs one box of continuous actions, {spec.name} has {spec.action}: use sac or ppo"
            )
        require_bounded(spec.action)
        encoder_key, flow_key, spread_key, shift_key = jax.random.split(key, 4)
        self.space, (self.lowest, self.highest) = spec.action, log_std
        self.encoder = Encoder(spec.observation, encoder_key)
        size, context = math.prod(self.space.shape), self.encoder.size
        self.couplings = Couplings(size, context, pairs, hidden, flow_key)
        self.spread = _flat(context, hidden, size, spread_key)
        nets = jax.vmap(lambda k: _flat(context, shift_hidden, 1, k))(jax.random.split(shift_key, shifts))
        self.shifts = nets

    def __call__(self, view: View) -> Flowing:
        """The flow in one state."""
        context = self.encoder(view.observation)
        spread = jnp.tanh(_apply(self.spread, context))
        log_std = self.lowest + 0.5 * (self.highest - self.lowest) * (spread + 1.0)
        shifts = jax.vmap(lambda net: _apply(net, context)[0])(self.shifts)
        return Flowing(self.couplings, context, log_std, shifts, self.space.shape)

    def at_first(self, chosen: Flowing, view: View, key: Key[Array, ""]) -> PyTree:
        """Anything, uniformly."""
        return random_action(self.space, key, view.legal)


def _flat(size_in: int, hidden: tuple[int, ...], size_out: int, key: Key[Array, ""]) -> tuple[MLP, Linear]:
    """A net with swish whose output is 0 at first."""
    body = MLP(size_in, hidden, uniform_fan_in, jax.nn.swish, key)
    return body, Linear(hidden[-1] if hidden else size_in, size_out, jax.nn.initializers.zeros, key)


def _apply(net: tuple[MLP, Linear], x: Float[Array, " in"]) -> Float[Array, " out"]:
    return net[1](net[0](x))
