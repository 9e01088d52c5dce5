r"""Annotated points: say a point, and an annotator with a known implicit density scores it.

An episode is one step. The reward is the log-density of the episode's annotator at the point, plus Gumbel noise: of two
points the one with the larger reward is a choice by Luce's rule, :math:`p(x_1) / (p(x_1) + p(x_2))`. Episodes of one
group have the same annotator.

Source: the toy experiment in the notebook of Dumoulin et al., 2023 (github.com/google-deepmind/pbde): two annotators
with a narrow and a wide normal density, who give 40% and 60% of the labels. Differs: theirs are at -2.5 and 2.5 with
standard deviations of 0.25 and 1, between -10 and 10; ours overlap more, so that small networks learn them in seconds.
"""

from __future__ import annotations

import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box
from thespis.runtime.keys import fold


class AnnotatedPoints(eqx.Module):
    """Annotated points: one step, rewarded by the log-density of an annotator, with noise.

    ``num_dims``: that of the points. ``means``, ``scales``, ``weights``: the normal densities of the annotators, the
    same in all dimensions, and their shares of the labels. ``bound``: the largest coordinate. ``annotators``:
    ``several``, each with one of the densities, or a ``single`` one, whose implicit density is their mixture.
    ``names_annotator``: whether the observation says who scores.
    """

    num_dims: int = eqx.field(static=True, default=1)
    means: tuple[float, ...] = eqx.field(static=True, default=(-2.0, 2.0))
    scales: tuple[float, ...] = eqx.field(static=True, default=(0.5, 1.0))
    weights: tuple[float, ...] = eqx.field(static=True, default=(0.4, 0.6))
    bound: float = eqx.field(static=True, default=7.0)
    annotators: Literal["single", "several"] = eqx.field(static=True, default="several")
    names_annotator: bool = eqx.field(static=True, default=False)

    @property
    def spec(self) -> EnvSpec:
        """Points within the bound; the observation has a place for each annotator."""
        space = Box((self.num_dims,), -self.bound, self.bound)
        return EnvSpec("annotated-points", Box((len(self.means),), 0.0, 1.0), space, time_limit=1)

    def annotator_log_densities(self, points: Float[Array, "*axes dim"]) -> Float[Array, "*axes annotator"]:
        """Log-density of each annotator; what the bound cuts off is negligible."""
        means, scales = jnp.asarray(self.means), jnp.asarray(self.scales)
        squares = jnp.square((points[..., None] - means) / scales).sum(axis=-2)
        return -0.5 * squares - self.num_dims * (jnp.log(scales) + 0.5 * math.log(2 * math.pi))

    def log_density(self, points: Float[Array, "*axes dim"]) -> Float[Array, "*axes"]:
        """Log-density of the mixture of the annotators."""
        return jax.nn.logsumexp(self.annotator_log_densities(points) + jnp.log(jnp.asarray(self.weights)), axis=-1)

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[Int[Array, ""], TimeStep]:
        """An annotator who is drawn; the state is its index."""
        annotator = jax.random.categorical(fold(key, "annotator"), jnp.log(jnp.asarray(self.weights))).astype("int32")
        return annotator, self._time_step(annotator, jnp.zeros(()), jnp.zeros((), bool))

    def step(
        self, state: Int[Array, ""], action: Float[Array, " dim"], key: Key[Array, ""]
    ) -> tuple[Int[Array, ""], TimeStep]:
        """The annotator's log-density at the point, with noise; the episode ends."""
        is_single = self.annotators == "single"
        score = self.log_density(action) if is_single else self.annotator_log_densities(action)[state]
        noise = jax.random.gumbel(fold(key, "noise"))
        return state, self._time_step(state, score + noise, jnp.ones((), bool))

    def _time_step(self, annotator: Int[Array, ""], reward: Array, terminated: Array) -> TimeStep:
        observation = jax.nn.one_hot(annotator, len(self.means)) * self.names_annotator
        return TimeStep(observation, reward, terminated, jnp.zeros((), bool))
