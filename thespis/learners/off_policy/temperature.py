"""Entropy temperature of maximum-entropy methods: fixed, or tuned to a target entropy (Haarnoja et al., 2018b)."""

from __future__ import annotations

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from thespis.core.records import EnvSpec, Number
from thespis.core.spaces import Box, Discrete
from thespis.learners.optim.optimizers import Adam, gradient_step
from thespis.runs.ranges import AT_LEAST_0, POSITIVE, in_range


class Temperature(eqx.Module):
    """Slot: entropy coefficient of maximum-entropy methods, constant or learned."""

    @abc.abstractmethod
    def init(self, spec: EnvSpec) -> PyTree:
        """The initial state, a tree of arrays; ``()`` if nothing is learned."""

    @abc.abstractmethod
    def alpha(self, state: PyTree) -> Float[Array, ""]:
        """The temperature: the weight of the entropy."""

    @abc.abstractmethod
    def update(self, state: PyTree, entropy: Float[Array, ""]) -> PyTree:
        """The state after an update in which the policy had this entropy, in nats."""


class FixedTemperature(Temperature):
    """Constant temperature: the weight of the entropy bonus."""

    value: Number = eqx.field(default=0.2, metadata=in_range(AT_LEAST_0))

    def init(self, spec: EnvSpec) -> PyTree:
        """An empty state: nothing has to be kept."""
        return ()

    def alpha(self, state: PyTree) -> Float[Array, ""]:
        """The temperature: the weight of the entropy."""
        return jnp.asarray(self.value, "float32")

    def update(self, state: PyTree, entropy: Float[Array, ""]) -> PyTree:
        """Return the state unchanged: nothing is learned."""
        return state


class TunedTemperature(Temperature):
    """Temperature that is adjusted until the policy's entropy meets a target.

    The default target is ``-dim`` nats for a box of ``dim`` dimensions (of canonical actions), and
    ``target_entropy_scale`` times the largest possible entropy for a discrete choice (Christodoulou, 2019, takes 0.98).
    """

    init_value: Number = eqx.field(default=1.0, metadata=in_range(POSITIVE))
    learning_rate: Number = 3e-4
    target_entropy: Number | None = None
    target_entropy_scale: Number = 0.89

    def init(self, spec: EnvSpec) -> PyTree:
        """Log of the temperature, optimizer state, target entropy in nats."""
        log_alpha = jnp.log(jnp.asarray(self.init_value, "float32"))
        opt_state = Adam(self.learning_rate).init(log_alpha)
        return log_alpha, opt_state, jnp.asarray(self._target_entropy(spec), "float32")

    def _target_entropy(self, spec: EnvSpec) -> Number:
        if self.target_entropy is not None:
            return self.target_entropy
        match spec.action_space:
            case Box():
                return -float(math.prod(spec.action_space.shape))
            case Discrete():
                return self.target_entropy_scale * math.log(spec.action_space.n)
        raise ValueError(f"no default target entropy for {spec.action_space}: set target_entropy")

    def alpha(self, state: PyTree) -> Float[Array, ""]:
        """The temperature: the weight of the entropy."""
        return jnp.exp(state[0])

    def update(self, state: PyTree, entropy: Float[Array, ""]) -> PyTree:
        """One gradient step on ``log alpha * (entropy - target)`` (the form in the authors' code)."""
        log_alpha, opt_state, target = state
        gap = jax.lax.stop_gradient(entropy - target)
        log_alpha, opt_state, _, _ = gradient_step(
            Adam(self.learning_rate), lambda log_alpha: (log_alpha * gap, ()), log_alpha, opt_state
        )
        return log_alpha, opt_state, target
