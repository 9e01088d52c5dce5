r"""Scores of levels: estimates of what the learner could still gain on a level, from one rollout on it.

Both are means over the complete episodes of the rollout (:math:`E` of them, of :math:`T_e` steps):

.. math:: \text{PVL} = \frac 1 E \sum_e \frac 1 {T_e} \sum_t \max(\hat A_t, 0), \qquad
   \text{MaxMC} = \frac 1 E \sum_e \frac 1 {T_e} \sum_t \left(G_{\max} - V(s_t)\right)

with the GAE advantages :math:`\hat A_t` and :math:`G_{\max}` the highest return ever reached on the level.

Source: Jiang et al., 2021 (Replay-Guided Adversarial Environment Design), section 3.
"""

from __future__ import annotations

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from thespis.core.records import Critique


class LevelScore(eqx.Module):
    """Score of a level: what the learner could still gain on it. Abstract; one value per environment of a rollout."""

    @abc.abstractmethod
    def __call__(
        self, critique: Critique, done: Bool[Array, "time env"], max_return: Float[Array, " env"]
    ) -> Float[Array, " env"]:
        """The score of each environment's level, whose episodes end where ``done``; without a complete one it is 0.

        ``max_return`` is the highest return ever reached on the level, this rollout included.
        """


class PositiveValueLoss(LevelScore):
    """Positive value loss: the mean of the positive part of the GAE advantages."""

    def __call__(
        self, critique: Critique, done: Bool[Array, "time env"], max_return: Float[Array, " env"]
    ) -> Float[Array, " env"]:
        """The score of each environment's level."""
        return episode_mean(jnp.maximum(_estimate(critique.advantage, "advantages"), 0.0), done)


class MaxMonteCarlo(LevelScore):
    """Maximum Monte Carlo: the mean of the highest return ever reached on the level minus the value."""

    def __call__(
        self, critique: Critique, done: Bool[Array, "time env"], max_return: Float[Array, " env"]
    ) -> Float[Array, " env"]:
        """The score of each environment's level."""
        return episode_mean(max_return - _estimate(critique.value, "values"), done)


def _estimate(values: Array | None, name: str) -> Array:
    if values is None:
        raise ValueError(f"the method's critic estimates no {name}, which this score of levels needs")
    return values


def episode_mean(values: Float[Array, "time env"], done: Bool[Array, "time env"]) -> Float[Array, " env"]:
    """The mean over complete episodes of the mean over their steps; 0 without a complete episode."""

    def step(carry: tuple[Array, ...], row: tuple[Array, Array]) -> tuple[tuple[Array, ...], None]:
        total, length, sum_of_means, episodes = carry
        value, ended = row
        total, length = total + value, length + 1.0
        sum_of_means = sum_of_means + jnp.where(ended, total / length, 0.0)
        episodes = episodes + ended
        return (jnp.where(ended, 0.0, total), jnp.where(ended, 0.0, length), sum_of_means, episodes), None

    zero = jnp.zeros(values.shape[1])
    (_, _, sum_of_means, episodes), _ = jax.lax.scan(step, (zero, zero, zero, zero), (values, done))
    return sum_of_means / jnp.maximum(episodes, 1.0)
