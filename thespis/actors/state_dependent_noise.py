"""State-dependent exploration noise (gSDE): noise that is a function of the state, and the same one for several steps.

The action is ``mean(s) + x(s) (sigma * z)``: features ``x`` of the last hidden layer, a learned matrix ``sigma`` of
standard deviations, and directions ``z``, a matrix of standard normal numbers that is drawn at the start of an episode
and every ``resample_interval`` steps. In between, the same state gets the same action, so that the noise is smooth.
At each step the action is normal with variance ``sum_i x_i(s)^2 sigma_ij^2``; this is the density that learners use.

Source: Raffin et al., 2022, eq. 5 and 6. As in their code, no gradient passes from the noise to the features.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.continuous_heads import OnPolicyHead, SoftActorHead
from thespis.actors.distributions import DirectedNormal, Normal, SquashedNormal
from thespis.core.errors import UserError
from thespis.core.spaces import Box, Space

MIN_VARIANCE = 1e-6
"""Added to the variance, which would be 0 where all features are."""


class ExplorationNoise(eqx.Module):
    """Memory of state-dependent noise while acting: directions for every box of the action space, and their age.

    A fresh episode has age 0, and gets its directions before its first action.
    """

    directions: tuple[Float[Array, "..."], ...]
    age: Int[Array, "..."]
    resample_interval: int = eqx.field(static=True)

    def renew(self, key: Key[Array, ""]) -> ExplorationNoise:
        """The noise of the next step of one episode: new directions where they are due."""
        is_due = self.age % self.resample_interval == 0
        keys = jax.random.split(key, len(self.directions))
        directions = tuple(
            jnp.where(is_due, jax.random.normal(k, z.shape), z) for k, z in zip(keys, self.directions, strict=True)
        )
        return ExplorationNoise(directions, self.age + 1, self.resample_interval)


def renew_noise(memory: PyTree, key: Key[Array, ""]) -> PyTree:
    """An actor's memory of one episode with its exploration noise renewed, if it has some."""

    def is_noise(part: PyTree) -> bool:
        return isinstance(part, ExplorationNoise)

    if not any(map(is_noise, jax.tree.leaves(memory, is_leaf=is_noise))):
        return memory
    key = jax.random.fold_in(key, 1)  # the actions are drawn with the key itself
    return jax.tree.map(lambda part: part.renew(key) if is_noise(part) else part, memory, is_leaf=is_noise)


@runtime_checkable
class HeadWithNoise(Protocol):
    """Interface of policy heads whose exploration noise outlasts a step."""

    resample_interval: int
    """Steps of an episode with the same direction of noise."""


@dataclasses.dataclass(frozen=True)
class StateDependentNoise(OnPolicyHead):
    """Gaussian policy head with state-dependent exploration noise (gSDE; Raffin et al., 2022)."""

    log_std_init: float = -2.0
    """Initial logarithm of the standard deviations of the directions' weights, in canonical units."""
    resample_interval: int = 8
    """Steps of an episode with the same direction of noise."""

    def num_outputs(self, space: Box) -> int:
        """Number of network outputs needed for ``space``: its means."""
        return math.prod(space.shape)

    def init_free_params(self, space: Box, num_features: int) -> Float[Array, "features *shape"]:
        """The initial log standard deviations of the weights."""
        return jnp.full((num_features, *space.shape), self.log_std_init)

    def distribution(
        self, space: Box, outputs: Array, free_params: Float[Array, "features *shape"], features: Array
    ) -> Normal:
        """Normal distribution of the action over all directions."""
        return Normal(outputs.reshape(space.shape), _log_std(features, free_params))


@dataclasses.dataclass(frozen=True)
class SquashedStateDependentNoise(SoftActorHead):
    """Squashed Gaussian policy head with state-dependent exploration noise, for bounded boxes.

    The same noise as :class:`StateDependentNoise`, added before squashing. Means are clipped, so that the noise is not
    lost where the squashing is flat. While learning, the noise of each sampled action is independent.
    """

    log_std_init: float = -3.0
    """Initial logarithm of the standard deviations of the directions' weights, before squashing."""
    resample_interval: int = 8
    """Steps of an episode with the same direction of noise."""
    max_mean: float = 2.0
    """Bound of the means before squashing."""

    def num_outputs(self, space: Box) -> int:
        """Number of network outputs needed for ``space``: its means. Raises ``UserError`` for an infinite bound."""
        require_bounded(space)
        return math.prod(space.shape)

    def init_free_params(self, space: Box, num_features: int) -> Float[Array, "features *shape"]:
        """The initial log standard deviations of the weights."""
        return jnp.full((num_features, *space.shape), self.log_std_init)

    def distribution(
        self, space: Box, outputs: Array, free_params: Float[Array, "features *shape"], features: Array
    ) -> SquashedNormal:
        """Squashed normal distribution of the action over all directions."""
        mean = jnp.clip(outputs.reshape(space.shape), -self.max_mean, self.max_mean)
        return SquashedNormal(mean, _log_std(features, free_params))

    def check_space(self, space: Space) -> None:
        """Accept every action space: parts that are not boxes do not use this head."""

    def actor_objective(
        self, weights: Float[Array, " k"], q_values: Float[Array, " k"], entropy_bonus: Float[Array, " k"]
    ) -> Float[Array, ""]:
        """The actor's objective in one view, to be maximised, from each sample's weight, value and entropy bonus."""
        return jnp.sum(weights * (q_values + entropy_bonus))


def _log_std(features: Float[Array, " features"], log_stds: Float[Array, "features *shape"]) -> Float[Array, "*shape"]:
    """Log standard deviation of the action over all directions, without gradient to the features."""
    variance = jnp.tensordot(jnp.square(jax.lax.stop_gradient(features)), jnp.exp(2.0 * log_stds), 1)
    return 0.5 * jnp.log(variance + MIN_VARIANCE)


def require_bounded(space: Box) -> None:
    """Raise ``UserError`` for a box with an infinite bound: squashed actions need finite ones."""
    low, high = space.bounds()
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise UserError(
            f"this method squashes actions into their bounds, and {space} has an infinite one: give the "
            "action space finite bounds, or use ppo or a2c"
        )


def init_noise(
    log_stds: tuple[Float[Array, "features *shape"], ...], resample_interval: int, n: int
) -> ExplorationNoise:
    """The noise of ``n`` fresh episodes."""
    directions = tuple(jnp.zeros((n, *log_std.shape)) for log_std in log_stds)
    return ExplorationNoise(directions, jnp.zeros(n, "int32"), resample_interval)


def direct(
    normal: Normal | SquashedNormal,
    log_std: Float[Array, "features *shape"],
    features: Array,
    direction: Float[Array, "..."],
) -> DirectedNormal:
    """The distribution while acting: ``normal`` with the noise of one direction."""
    return DirectedNormal(normal, jnp.tensordot(features, jnp.exp(log_std) * direction, 1))
