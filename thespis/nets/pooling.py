"""An episode so far as one vector: a weighted mean over its steps, with weights that are learnt (attention pooling).

A step is an observation beside the one before it. Sums are carried along, so acting costs the same at every step, and
any subset of the steps of a rollout can be pooled without going through it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from thespis.core.spaces import Space
from thespis.nets.body import Encoder
from thespis.nets.mlp import MLP, Linear, orthogonal

_LARGEST = 5.0
"""Scores are within this, so that their exponentials can be summed for ever."""


class Pooled(eqx.Module):
    """What is known after some steps; all zeros before the first."""

    last: Float[Array, "*axes features"]
    total: Float[Array, "*axes size"]
    weight: Float[Array, "*axes"]

    @property
    def mean(self) -> Float[Array, "*axes size"]:
        """The weighted mean, each number in [-1, 1]; 0 where there was no step."""
        return self.total / jnp.maximum(self.weight, 1e-8)[..., None]


class Steps(eqx.Module):
    """Steps of a rollout: features of what was seen, what each says of the episode, and how much that counts."""

    now: Float[Array, "*axes features"]
    value: Float[Array, "*axes size"]
    weight: Float[Array, "*axes"]

    def pooled(self, chosen: Bool[Array, "*axes"]) -> Float[Array, "*rows size"]:
        """The weighted mean of the chosen steps alone, over the last axis of ``chosen``."""
        weight = self.weight * chosen
        return Pooled(self.now[..., 0, :], jnp.sum(weight[..., None] * self.value, -2), jnp.sum(weight, -1)).mean


class Pooling(eqx.Module):
    """From the observations of an episode so far to ``size`` numbers."""

    encoder: Encoder
    mlp: MLP
    score: Float[Array, " width"]
    value: Linear

    def __init__(
        self,
        space: Space,
        hidden: tuple[int, ...],
        size: int,
        key: Key[Array, ""],
        activation: Callable[[Array], Array] = jnp.tanh,
    ):
        encoder_key, mlp_key, score_key, value_key = jax.random.split(key, 4)
        self.encoder = Encoder(space, encoder_key)
        self.mlp = MLP(2 * self.encoder.size, hidden, orthogonal(2**0.5), activation, mlp_key)
        width = hidden[-1] if hidden else 2 * self.encoder.size
        self.score = orthogonal(0.01)(score_key, (width, 1))[:, 0]  # without bias, which would change all weights alike
        self.value = Linear(width, size, orthogonal(1.0), value_key)

    def begin(self, n: int) -> Pooled:
        """Nothing known, of ``n`` episodes."""
        size = self.value.bias.shape[-1]
        return Pooled(jnp.zeros((n, self.encoder.size)), jnp.zeros((n, size)), jnp.zeros(n))

    def __call__(self, known: Pooled, observation: PyTree) -> Pooled:
        """What is known after one more observation."""
        now = self.encoder(observation)
        value, weight = self._weighed(known.last, now)
        return Pooled(now, known.total + weight * value, known.weight + weight)

    def steps(self, last: Float[Array, "row features"], observations: PyTree, first: Bool[Array, "time row"]) -> Steps:
        """Every step of a rollout by itself; ``last`` are the features of the observations before it."""
        now = jax.vmap(jax.vmap(self.encoder))(observations)
        before = jnp.where(first[..., None], 0.0, jnp.concatenate([last[None], now[:-1]]))
        return Steps(now, *jax.vmap(jax.vmap(self._weighed))(before, now))

    def unroll(self, known: Pooled, observations: PyTree, first: Bool[Array, "time row"]) -> Pooled:
        """What is known after each step ``[time, row]`` of a rollout; ``known`` before it is ``[row]``."""
        steps = self.steps(known.last, observations, first)

        def add(sums: tuple[Array, Array], inputs: tuple[Array, Array, Array]) -> Any:
            (total, weight), (value, more, first) = sums, inputs
            total, weight = jnp.where(first[:, None], 0.0, total), jnp.where(first, 0.0, weight)
            sums = total + more[:, None] * value, weight + more
            return sums, sums

        _, (total, weight) = jax.lax.scan(add, (known.total, known.weight), (steps.value, steps.weight, first))
        return Pooled(steps.now, total, weight)

    def _weighed(self, last: Float[Array, " features"], now: Float[Array, " features"]) -> tuple[Array, Array]:
        features = self.mlp(jnp.concatenate([now, last]))
        weight = jnp.exp(_LARGEST * jnp.tanh(features @ self.score / _LARGEST))
        return jnp.tanh(self.value(features)), weight
