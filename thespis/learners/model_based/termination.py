"""Termination functions: when an episode ends in a learned model, as a function of one transition.

Of the environments of Gymnasium with MuJoCo, the rules are known; of others they are learned.
"""

from __future__ import annotations

import abc
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from thespis.core.records import Number


class Termination(eqx.Module):
    """Slot: whether an episode terminates with a step, seen from flat observations and an output of the model."""

    num_logits: ClassVar[int] = 0
    """Outputs of the model that are trained to predict termination: 1 or none."""

    @abc.abstractmethod
    def __call__(
        self, observation: Float[Array, " n"], next_observation: Float[Array, " n"], logits: Float[Array, " num_logits"]
    ) -> Bool[Array, ""]:
        """Whether the step ends the episode. ``logits``: log-odds of it by the model, if :attr:`num_logits` is 1."""


class LearnedTermination(Termination):
    """Termination by a further output of the model, trained with cross-entropy: for any environment."""

    num_logits: ClassVar[int] = 1

    threshold: Number = 0.5
    """Predicted probability above which the episode ends."""

    def __call__(
        self, observation: Float[Array, " n"], next_observation: Float[Array, " n"], logits: Float[Array, " num_logits"]
    ) -> Bool[Array, ""]:
        """Whether the predicted probability of termination exceeds the threshold."""
        return logits[0] > jnp.log(self.threshold) - jnp.log1p(-self.threshold)


class HealthyRange(Termination):
    """Termination where a body leaves its healthy range: height or angle too small or too large, or a number explodes.

    Defaults are those of Hopper, and :data:`HEALTHY_RANGES` has those of other bodies. Positions come first in
    observations, without the horizontal one, as in MuJoCo's environments of Gymnasium.
    """

    min_height: float = eqx.field(static=True, default=0.7)
    """Smallest height, of ``observation[0]``."""
    max_height: float = eqx.field(static=True, default=float("inf"))
    """Largest height."""
    max_angle: float = eqx.field(static=True, default=0.2)
    """Largest absolute angle, of ``observation[1]``."""
    max_value: float = eqx.field(static=True, default=100.0)
    """Largest absolute value of every number but the height."""

    def __call__(
        self, observation: Float[Array, " n"], next_observation: Float[Array, " n"], logits: Float[Array, " num_logits"]
    ) -> Bool[Array, ""]:
        """Whether the next observation is out of range, or not finite."""
        height, rest = next_observation[0], next_observation[1:]
        inside = (height > self.min_height) & (height < self.max_height)
        inside &= jnp.all(jnp.abs(rest) < self.max_value) & (jnp.abs(rest[0]) < self.max_angle)
        return ~(inside & jnp.all(jnp.isfinite(next_observation)))


HEALTHY_RANGES = {
    "Hopper": HealthyRange(),
    "Walker2d": HealthyRange(0.8, 2.0, 1.0, float("inf")),
    "Ant": HealthyRange(0.2, 1.0, float("inf"), float("inf")),
    "Humanoid": HealthyRange(1.0, 2.0, float("inf"), float("inf")),
    "InvertedPendulum": HealthyRange(-float("inf"), float("inf"), 0.2, float("inf")),
}
"""Rules of Gymnasium's environments (versions 4 and 5) by name; HalfCheetah, Swimmer and Pendulum never terminate."""
