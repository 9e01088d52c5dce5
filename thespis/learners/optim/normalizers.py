"""Running normalization of observations and rewards, kept in the method's state so that actors carry it along."""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from thespis.core.errors import UserError
from thespis.core.spaces import Box, Space, map_space, space_shape
from thespis.objectives.statistics import masked_mean


class RunningMoments(eqx.Module):
    """Running count, mean and variance, merged batch by batch (Chan et al., 1979)."""

    count: Float[Array, ""]
    mean: Float[Array, "*shape"]
    variance: Float[Array, "*shape"]

    def merge(self, x: Float[Array, "batch *shape"], mask: Bool[Array, " batch"] | None = None) -> RunningMoments:
        """Moments after a batch ``x`` is added; rows where ``mask`` is false do not count."""
        weight = jnp.ones(x.shape[0]) if mask is None else mask.astype("float32")
        weight = weight.reshape(-1, *[1] * (x.ndim - 1))
        n = jnp.maximum(weight.sum(), 1e-8)
        mean = (weight * x).sum(0) / n
        variance = (weight * (x - mean) ** 2).sum(0) / n
        total = self.count + n
        shift = mean - self.mean
        merged = (self.variance * self.count + variance * n + shift**2 * self.count * n / total) / total
        return RunningMoments(total, self.mean + shift * n / total, merged)


def init_moments(shape: tuple[int, ...]) -> RunningMoments:
    """Initial moments: mean 0 and variance 1, with a count of nearly 0."""
    return RunningMoments(jnp.full((), 1e-4), jnp.zeros(shape), jnp.ones(shape))


class _Identity(eqx.Module):
    """No observation normalization: observations pass unchanged."""

    def init(self, space: Space) -> PyTree:
        """An empty state: nothing has to be kept."""
        return ()

    def normalize(self, state: PyTree, observation: PyTree) -> PyTree:
        """Return the observation unchanged."""
        return observation

    def update(self, state: PyTree, observations: PyTree, mask: Bool[Array, "time row"]) -> PyTree:
        """Return the state unchanged: nothing is learned."""
        return state


IDENTITY = _Identity()
"""What ``obs_normalizer=None`` does."""


class ObsNormalizer(eqx.Module):
    """Slot: how observations are normalized."""

    @abc.abstractmethod
    def init(self, space: Space) -> PyTree:
        """The initial state for observations of ``space``, a tree of arrays."""

    @abc.abstractmethod
    def normalize(self, state: PyTree, observation: PyTree) -> PyTree:
        """One observation, normalized; its shapes stay."""

    @abc.abstractmethod
    def update(self, state: PyTree, observations: PyTree, mask: Bool[Array, "time row"]) -> PyTree:
        """The state after observations ``[time, row, ...]``, of which those count where ``mask`` is true."""


class RunningMeanStd(ObsNormalizer):
    """Running normalization of float observations to mean 0 and variance 1, clipped; other dtypes pass unchanged."""

    clip: float = eqx.field(static=True, default=10.0)

    def init(self, space: Space) -> PyTree:
        """Initial moments of every float part, in the order of the space's leaves (``None`` for other parts)."""
        moments: list[Any] = []
        map_space(lambda part: moments.append(init_moments(space_shape(part)) if _is_normalized(part) else None), space)
        return tuple(moments)

    def normalize(self, state: PyTree, observation: PyTree) -> PyTree:
        """Normalize one observation by the running statistics."""

        def leaf(x: Array, moments: RunningMoments | None) -> Array:
            if moments is None:
                return x
            return jnp.clip((x - moments.mean) / jnp.sqrt(moments.variance + 1e-8), -self.clip, self.clip)

        return self._map_leaves(leaf, observation, state)

    def update(self, state: PyTree, observations: PyTree, mask: Bool[Array, "time row"]) -> PyTree:
        """Moments after the observations ``[time, row, ...]`` are added where ``mask`` is true."""
        leaves = jax.tree.leaves(observations)
        return tuple(
            m if m is None else m.merge(x.reshape(-1, *x.shape[2:]), mask.ravel())
            for m, x in zip(state, leaves, strict=True)
        )

    def _map_leaves(self, leaf: Any, observation: PyTree, state: PyTree) -> PyTree:
        values, tree = jax.tree.flatten(observation)
        return jax.tree.unflatten(tree, [leaf(x, m) for x, m in zip(values, state, strict=True)])


def _is_normalized(space: Space) -> bool:
    return isinstance(space, Box) and space.dtype.startswith("float")


class _RawReward(eqx.Module):
    """No reward normalization: rewards pass unchanged."""

    def init(self, num_envs: int = 1) -> PyTree:
        """An empty state: nothing has to be kept."""
        return ()

    def normalize(self, state: PyTree, reward: Array) -> Array:
        """Return the reward unchanged."""
        return reward

    def reward_scale(self, state: PyTree) -> Float[Array, ""]:
        """Factor from the learner's units of reward to the environment's: 1."""
        return jnp.ones(())

    def update(self, state: PyTree, reward: Array, done: Array, discount: Any, mask: Array | None = None) -> PyTree:
        """Return the state unchanged: nothing is learned."""
        return state


RAW_REWARD = _RawReward()
"""What ``reward_normalizer=None`` does."""


class CarriedReturns(eqx.Module):
    """State of a return normalizer whose sums outlast a rollout."""

    moments: RunningMoments
    sums: Float[Array, " env"]
    """Discounted reward sum of each environment's episode so far."""


class RewardNormalizer(eqx.Module):
    """Slot: how rewards are normalized before anything is learned from them."""

    @abc.abstractmethod
    def init(self, num_envs: int = 1) -> PyTree:
        """The initial state, a tree of arrays."""

    @abc.abstractmethod
    def normalize(self, state: PyTree, reward: Float[Array, "..."]) -> Float[Array, "..."]:
        """Normalized rewards."""

    @abc.abstractmethod
    def reward_scale(self, state: PyTree) -> Float[Array, ""]:
        """Factor from the learner's units of reward to the environment's."""

    @abc.abstractmethod
    def update(
        self,
        state: PyTree,
        reward: Float[Array, "time row"],
        done: Bool[Array, "time row"],
        discount: Any,
        mask: Bool[Array, "time row"] | None = None,
    ) -> PyTree:
        """The state after a rollout, of whose rewards those count where ``mask`` is true."""


class ReturnNormalizer(RewardNormalizer):
    """Reward normalizer: divides by the running standard deviation of discounted reward sums, and clips.

    Source: Engstrom et al., 2020. A sum restarts with each episode.
    """

    clip: float = eqx.field(static=True, default=10.0)
    """Bound of a normalized reward."""
    across_rollouts: bool = eqx.field(static=True, default=False)
    """Whether a sum goes on in the environment's next rollout, as in SB3 and Gymnasium; otherwise it restarts with each
    rollout, which makes rewards larger if rollouts are shorter than the horizon. Needs one row of the rollout per
    environment: agents with shared parameters have more."""

    def init(self, num_envs: int = 1) -> PyTree:
        """Initial moments of the discounted sums, and each environment's sum so far if it is carried on."""
        moments = init_moments(())
        return CarriedReturns(moments, jnp.zeros(num_envs)) if self.across_rollouts else moments

    def normalize(self, state: PyTree, reward: Float[Array, "..."]) -> Float[Array, "..."]:
        """Rewards divided by the scale, clipped."""
        return jnp.clip(reward / self.reward_scale(state), -self.clip, self.clip)

    def reward_scale(self, state: PyTree) -> Float[Array, ""]:
        """Factor from the learner's units of reward to the environment's: the standard deviation of the sums."""
        moments = state.moments if isinstance(state, CarriedReturns) else state
        return jnp.sqrt(moments.variance + 1e-8)

    def update(
        self,
        state: PyTree,
        reward: Float[Array, "time row"],
        done: Bool[Array, "time row"],
        discount: Any,
        mask: Bool[Array, "time row"] | None = None,
    ) -> PyTree:
        """Moments after the discounted sums of a rollout are added where ``mask`` is true.

        Raises ``UserError`` if sums are carried and there are not as many rows as in ``init``.
        """
        sums = state.sums if isinstance(state, CarriedReturns) else jnp.zeros(reward.shape[1:])
        if sums.shape != reward.shape[1:]:
            raise UserError(
                f"reward_normalizer.across_rollouts needs a row of the rollout for each of feed.num_envs={len(sums)} "
                f"environments, and there are {reward.shape[1]} rows: set across_rollouts=false"
            )

        def step(total, inputs):
            reward, ended = inputs
            total = discount * total + reward
            return jnp.where(ended, 0.0, total), total

        sums, totals = jax.lax.scan(step, sums, (reward, done))
        added = totals.ravel(), None if mask is None else mask.ravel()
        if isinstance(state, CarriedReturns):
            return CarriedReturns(state.moments.merge(*added), sums)
        return state.merge(*added)


class RewardCentering(RewardNormalizer):
    """Reward centering: rewards minus their running mean.

    With a discount of 1, values are then differential and the objective is the average reward. The units are the
    environment's, but values are relative: they are known up to a constant only.
    """

    ema_rate: float | Float[Array, ""] = 0.1
    """Weight of the newest rollout in the running mean; the first rollout counts fully."""

    def init(self, num_envs: int = 1) -> PyTree:
        """The mean, and whether there has been a rollout."""
        return jnp.zeros(()), jnp.zeros((), bool)

    def normalize(self, state: PyTree, reward: Float[Array, "..."]) -> Float[Array, "..."]:
        """Rewards minus their running mean."""
        return reward - state[0]

    def reward_scale(self, state: PyTree) -> Float[Array, ""]:
        """Factor from the learner's units of reward to the environment's: 1."""
        return jnp.ones(())

    def update(
        self,
        state: PyTree,
        reward: Float[Array, "time row"],
        done: Bool[Array, "time row"],
        discount: Any,
        mask: Bool[Array, "time row"] | None = None,
    ) -> PyTree:
        """The mean after a rollout's rewards are added where ``mask`` is true."""
        newest = masked_mean(reward, mask)
        return jnp.where(state[1], state[0] + self.ema_rate * (newest - state[0]), newest), jnp.ones((), bool)


AnyObsNormalizer = _Identity | ObsNormalizer
AnyRewardNormalizer = _RawReward | RewardNormalizer
