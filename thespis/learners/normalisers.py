"""Running scales of observations and rewards, kept in the method's state so that actors carry them along."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from thespis.core.spaces import Box, Space, map_space, shape_of
from thespis.objectives.normalise import mean


class Moments(eqx.Module):
    """Count, mean and mean squared deviation, merged batch by batch (Chan et al., 1979)."""

    count: Float[Array, ""]
    mean: Float[Array, "*shape"]
    variance: Float[Array, "*shape"]

    def merge(self, x: Float[Array, "batch *shape"], mask: Bool[Array, " batch"] | None = None) -> Moments:
        """Moments with a batch added."""
        weight = jnp.ones(x.shape[0]) if mask is None else mask.astype("float32")
        weight = weight.reshape(-1, *[1] * (x.ndim - 1))
        n = jnp.maximum(weight.sum(), 1e-8)
        mean = (weight * x).sum(0) / n
        variance = (weight * (x - mean) ** 2).sum(0) / n
        total = self.count + n
        shift = mean - self.mean
        merged = (self.variance * self.count + variance * n + shift**2 * self.count * n / total) / total
        return Moments(total, self.mean + shift * n / total, merged)


def fresh_moments(shape: tuple[int, ...]) -> Moments:
    """Mean 0, variance 1, with next to no weight."""
    return Moments(jnp.full((), 1e-4), jnp.zeros(shape), jnp.ones(shape))


class AsTheyAre(eqx.Module):
    """Observations pass unchanged."""

    def init(self, space: Space) -> PyTree:
        """No state."""
        return ()

    def apply(self, state: PyTree, observation: PyTree) -> PyTree:
        """The observation itself."""
        return observation

    def update(self, state: PyTree, observations: PyTree, mask: Bool[Array, "time row"]) -> PyTree:
        """No state."""
        return state


class RunningScale(eqx.Module):
    """Float parts are shifted and scaled to mean 0 and variance 1, then clipped; bytes and choices pass."""

    clip: float = eqx.field(static=True, default=10.0)

    def init(self, space: Space) -> PyTree:
        """Moments of every float part (in the order of the space's leaves)."""
        found: list[Any] = []
        map_space(lambda part: found.append(fresh_moments(shape_of(part)) if _scaled(part) else None), space)
        return tuple(found)

    def apply(self, state: PyTree, observation: PyTree) -> PyTree:
        """One observation, scaled."""

        def leaf(x: Array, moments: Moments | None) -> Array:
            if moments is None:
                return x
            return jnp.clip((x - moments.mean) / jnp.sqrt(moments.variance + 1e-8), -self.clip, self.clip)

        return self._map(leaf, observation, state)

    def update(self, state: PyTree, observations: PyTree, mask: Bool[Array, "time row"]) -> PyTree:
        """Moments with the observations ``[time, row, ...]`` that ``mask`` lets through added."""
        leaves = jax.tree.leaves(observations)
        return tuple(
            m if m is None else m.merge(x.reshape(-1, *x.shape[2:]), mask.ravel())
            for m, x in zip(state, leaves, strict=True)
        )

    def _map(self, leaf: Any, observation: PyTree, state: PyTree) -> PyTree:
        values, tree = jax.tree.flatten(observation)
        return jax.tree.unflatten(tree, [leaf(x, m) for x, m in zip(values, state, strict=True)])


def _scaled(space: Space) -> bool:
    return isinstance(space, Box) and space.dtype.startswith("float")


class RawReward(eqx.Module):
    """Rewards pass unchanged."""

    def init(self) -> PyTree:
        """No state."""
        return ()

    def apply(self, state: PyTree, reward: Array) -> Array:
        """The reward itself."""
        return reward

    def unit(self, state: PyTree) -> Float[Array, ""]:
        """What one unit of the learner's reward is worth in the world's."""
        return jnp.ones(())

    def update(self, state: PyTree, reward: Array, ended: Array, discount: Any, mask: Array | None = None) -> PyTree:
        """No state."""
        return state


class ReturnScale(eqx.Module):
    """Rewards divided by the running standard deviation of discounted reward sums, clipped (Engstrom et al., 2020).

    The sums start anew at each rollout and each episode, so for rollouts shorter than the horizon the scale is
    smaller than the published one.
    """

    clip: float = eqx.field(static=True, default=10.0)

    def init(self) -> PyTree:
        """Moments of the discounted sums."""
        return fresh_moments(())

    def apply(self, state: PyTree, reward: Float[Array, "..."]) -> Float[Array, "..."]:
        """Rewards, scaled."""
        return jnp.clip(reward / self.unit(state), -self.clip, self.clip)

    def unit(self, state: PyTree) -> Float[Array, ""]:
        """What one unit of the learner's reward is worth in the world's."""
        return jnp.sqrt(state.variance + 1e-8)

    def update(
        self,
        state: PyTree,
        reward: Float[Array, "time row"],
        ended: Bool[Array, "time row"],
        discount: Any,
        mask: Bool[Array, "time row"] | None = None,
    ) -> PyTree:
        """Moments with the sums of a rollout added, those that ``mask`` lets through."""

        def step(total, inputs):
            reward, ended = inputs
            total = discount * total + reward
            return jnp.where(ended, 0.0, total), total

        _, totals = jax.lax.scan(step, jnp.zeros(reward.shape[1]), (reward, ended))
        return state.merge(totals.ravel(), None if mask is None else mask.ravel())


class Centred(eqx.Module):
    """Rewards less their running mean: with a discount of 1, values are differential and what is climbed is the
    average reward. The units are the world's, but values are relative and known up to a constant only.
    """

    rate: float | Float[Array, ""] = 0.1
    """Share of the newest rollout in the mean; the first counts whole."""

    def init(self) -> PyTree:
        """The mean, and whether there is one."""
        return jnp.zeros(()), jnp.zeros((), bool)

    def apply(self, state: PyTree, reward: Float[Array, "..."]) -> Float[Array, "..."]:
        """Rewards, centred."""
        return reward - state[0]

    def unit(self, state: PyTree) -> Float[Array, ""]:
        """One."""
        return jnp.ones(())

    def update(
        self,
        state: PyTree,
        reward: Float[Array, "time row"],
        ended: Bool[Array, "time row"],
        discount: Any,
        mask: Bool[Array, "time row"] | None = None,
    ) -> PyTree:
        """The mean with a rollout's rewards added, those that ``mask`` lets through."""
        newest = mean(reward, mask)
        return jnp.where(state[1], state[0] + self.rate * (newest - state[0]), newest), jnp.ones((), bool)


ObservationScale = AsTheyAre | RunningScale
RewardScale = RawReward | ReturnScale | Centred
