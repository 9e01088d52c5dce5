"""The weight of entropy in maximum-entropy methods: fixed, or tuned to a target (Haarnoja et al., 2018b)."""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from thespis.core.records import EnvSpec
from thespis.core.spaces import Box, Discrete
from thespis.learners.gradient import Adam, Number, gradient_step


class FixedTemperature(eqx.Module):
    """A constant weight."""

    value: Number = 0.2

    def init(self, spec: EnvSpec) -> PyTree:
        """Nothing is learnt."""
        return ()

    def alpha(self, state: PyTree) -> Float[Array, ""]:
        """The weight."""
        return jnp.asarray(self.value, "float32")

    def update(self, state: PyTree, entropy: Float[Array, ""]) -> PyTree:
        """Nothing is learnt."""
        return state


class TunedTemperature(eqx.Module):
    """Moves the weight until the policy's entropy meets a target.

    The target is ``-dim`` nats for a box of ``dim`` dimensions (of canonical actions), and ``discrete_share``
    of the largest possible entropy for a discrete choice (Christodoulou, 2019, takes 0.98).
    """

    initial: Number = 1.0
    learning_rate: Number = 3e-4
    target: Number | None = None
    discrete_share: Number = 0.89

    def init(self, spec: EnvSpec) -> PyTree:
        """Log of the weight, optimiser state, target entropy in nats."""
        log_alpha = jnp.log(jnp.asarray(self.initial, "float32"))
        opt_state = Adam(self.learning_rate).init(log_alpha)
        return log_alpha, opt_state, jnp.asarray(self._target(spec), "float32")

    def _target(self, spec: EnvSpec) -> Number:
        if self.target is not None:
            return self.target
        match spec.action:
            case Box():
                return -float(math.prod(spec.action.shape))
            case Discrete():
                return self.discrete_share * math.log(spec.action.n)
        raise ValueError(f"no default target entropy for {spec.action}: give one")

    def alpha(self, state: PyTree) -> Float[Array, ""]:
        """The weight."""
        return jnp.exp(state[0])

    def update(self, state: PyTree, entropy: Float[Array, ""]) -> PyTree:
        """One step on ``log alpha * (entropy - target)`` (the form in the authors' code)."""
        log_alpha, opt_state, target = state
        gap = jax.lax.stop_gradient(entropy - target)
        log_alpha, opt_state, _, _ = gradient_step(
            Adam(self.learning_rate), lambda log_alpha: (log_alpha * gap, ()), log_alpha, opt_state
        )
        return log_alpha, opt_state, target


Temperature = FixedTemperature | TunedTemperature
