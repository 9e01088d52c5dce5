"""Attention pooling of an episode so far: a mean of its steps with learned weights, and its contrastive training.

A step is an observation with the one before it. Sums are carried along, so acting costs the same at every step, and any
subset of the steps of a rollout can be pooled without processing it again.

The contrastive loss (InfoNCE) makes the embeddings of two halves of one window of an episode similar, and those of
different windows dissimilar.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from thespis.core.records import Batch, Number
from thespis.core.spaces import Space
from thespis.learners.optim.optimizers import Adam, gradient_step
from thespis.nets.body import Encoder
from thespis.nets.mlp import MLP, Linear, orthogonal
from thespis.objectives.contrastive import info_nce
from thespis.runtime.keys import fold
from thespis.runtime.vmap_exact import replicate

_MAX_SCORE = 5.0
"""Scores are within this, so that sums of their exponentials stay finite."""


class PoolingState(eqx.Module):
    """Running sums of attention pooling; all zeros before the first step."""

    last_features: Float[Array, "*axes features"]
    weighted_sum: Float[Array, "*axes size"]
    weight_sum: Float[Array, "*axes"]

    @property
    def mean(self) -> Float[Array, "*axes size"]:
        """The weighted mean, each entry in [-1, 1]; 0 before the first step."""
        return self.weighted_sum / jnp.maximum(self.weight_sum, 1e-8)[..., None]


class StepFeatures(eqx.Module):
    """Steps of a rollout: features of the observations, and each step's value vector and weight."""

    features: Float[Array, "*axes features"]
    value: Float[Array, "*axes size"]
    weight: Float[Array, "*axes"]

    def pool(self, mask: Bool[Array, "*axes"]) -> Float[Array, "*rows size"]:
        """The weighted mean of the steps in ``mask`` alone, over the last axis of ``mask``."""
        weight = self.weight * mask
        return PoolingState(
            self.features[..., 0, :], jnp.sum(weight[..., None] * self.value, -2), jnp.sum(weight, -1)
        ).mean


class AttentionPooling(eqx.Module):
    """Attention pooling from the observations of an episode so far to ``embedding_size`` numbers."""

    encoder: Encoder
    mlp: MLP
    score: Float[Array, " width"]
    value: Linear

    def __init__(
        self,
        space: Space,
        hidden_sizes: tuple[int, ...],
        embedding_size: int,
        key: Key[Array, ""],
        activation: Callable[[Array], Array] = jnp.tanh,
    ):
        encoder_key, mlp_key, score_key, value_key = jax.random.split(key, 4)
        self.encoder = Encoder(space, encoder_key)
        self.mlp = MLP(2 * self.encoder.feature_size, hidden_sizes, orthogonal(2**0.5), activation, mlp_key)
        width = hidden_sizes[-1] if hidden_sizes else 2 * self.encoder.feature_size
        self.score = orthogonal(0.01)(score_key, (width, 1))[:, 0]  # a bias would scale all weights alike
        self.value = Linear(width, embedding_size, orthogonal(1.0), value_key)

    def init_memory(self, n: int) -> PoolingState:
        """The state before the first step of ``n`` episodes."""
        size = self.value.bias.shape[-1]
        return PoolingState(jnp.zeros((n, self.encoder.feature_size)), jnp.zeros((n, size)), jnp.zeros(n))

    def __call__(self, state: PoolingState, observation: PyTree) -> PoolingState:
        """The state after one more observation."""
        features = self.encoder(observation)
        value, weight = self._value_and_weight(state.last_features, features)
        return PoolingState(features, state.weighted_sum + weight * value, state.weight_sum + weight)

    def step_features(
        self, last_features: Float[Array, "row features"], observations: PyTree, is_first: Bool[Array, "time row"]
    ) -> StepFeatures:
        """Value and weight of every step of a rollout; ``last_features`` are those of the observation before it."""
        features = jax.vmap(jax.vmap(self.encoder))(observations)
        previous = jnp.where(is_first[..., None], 0.0, jnp.concatenate([last_features[None], features[:-1]]))
        return StepFeatures(features, *jax.vmap(jax.vmap(self._value_and_weight))(previous, features))

    def unroll(self, state: PoolingState, observations: PyTree, is_first: Bool[Array, "time row"]) -> PoolingState:
        """The state after each step ``[time, row]`` of a rollout; ``state`` before it is ``[row]``."""
        steps = self.step_features(state.last_features, observations, is_first)

        def add(sums: tuple[Array, Array], inputs: tuple[Array, Array, Array]) -> Any:
            (total, weight), (value, step_weight, first) = sums, inputs
            total, weight = jnp.where(first[:, None], 0.0, total), jnp.where(first, 0.0, weight)
            sums = total + step_weight[:, None] * value, weight + step_weight
            return sums, sums

        _, (total, weight) = jax.lax.scan(
            add, (state.weighted_sum, state.weight_sum), (steps.value, steps.weight, is_first)
        )
        return PoolingState(steps.features, total, weight)

    def _value_and_weight(
        self, last_features: Float[Array, " features"], current_features: Float[Array, " features"]
    ) -> tuple[Array, Array]:
        features = self.mlp(jnp.concatenate([current_features, last_features]))
        weight = jnp.exp(_MAX_SCORE * jnp.tanh(features @ self.score / _MAX_SCORE))
        return jnp.tanh(self.value(features)), weight


class ContrastiveEncoderState(eqx.Module):
    """State of the contrastive encoder: encoder, projection head of the loss, and their optimizer."""

    encoder: AttentionPooling
    projection_head: Linear
    opt_state: PyTree


class ContrastiveEncoder(eqx.Module):
    """InfoNCE training of an encoder: windows are split at random into two halves, which must find each other."""

    learning_rate: Number = 1e-3
    """Step size of the encoder."""
    temperature: Number = 0.1
    """Temperature of the loss: divides cosine similarities, above 0."""
    max_grad_norm: Number = 0.5
    """Global norm to which the encoder's gradient is clipped."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(64,))
    """Units of each hidden layer of the encoder."""
    embedding_size: int = eqx.field(static=True, default=8)
    """Size of the embedding of an episode so far."""
    window_length: int = eqx.field(static=True, default=16)
    """Steps of a window, which ends early with its episode; steps after a rollout's last whole window are not used."""
    num_epochs: int = eqx.field(static=True, default=4)
    """Gradient steps on each rollout, each with a new random split into halves."""

    def init(self, space: Space, key: Key[Array, ""]) -> ContrastiveEncoderState:
        """Fresh encoder of observations of ``space``."""
        encoder = AttentionPooling(space, self.hidden_sizes, self.embedding_size, fold(key, "encoder"))
        projection_head = Linear(self.embedding_size, self.embedding_size, orthogonal(1.0), fold(key, "compared"))
        return ContrastiveEncoderState(
            encoder, projection_head, self._make_optimizer().init((encoder, projection_head))
        )

    def update(
        self, state: ContrastiveEncoderState, pooled: PoolingState, batch: Batch, key: Key[Array, ""]
    ) -> tuple[ContrastiveEncoderState, dict[str, Array]]:
        """All gradient steps on one rollout, before which the pooling state was ``pooled``; and metrics."""
        steps = batch.steps
        rollout = replicate((pooled.last_features, steps.view.observation, steps.is_first))
        counts = replicate(batch.mask if steps.view.alive is None else batch.mask & steps.view.alive)

        def step(carry: tuple[Any, PyTree], key: Key[Array, ""]) -> Any:
            networks, opt, metrics, _ = gradient_step(
                self._make_optimizer(),
                lambda networks: self.loss(networks[0], networks[1], rollout, counts, key),
                *carry,
            )
            return (networks, opt), metrics

        keys = jax.random.split(key, self.num_epochs)
        initial = (state.encoder, state.projection_head), state.opt_state
        (networks, opt), metrics = jax.lax.scan(step, initial, keys)
        return ContrastiveEncoderState(*networks, opt), jax.tree.map(jnp.mean, metrics)

    def loss(
        self,
        encoder: AttentionPooling,
        projection_head: Linear,
        rollout: Any,
        mask: Bool[Array, "time row"],
        key: Key[Array, ""],
    ) -> tuple[Array, dict[str, Array]]:
        """InfoNCE loss between the halves of every window, and metrics.

        ``rollout``: encoder features before it (``[row, ...]``), its observations, and where episodes start.
        """
        length = min(self.window_length, mask.shape[0])

        def cut(x: Array) -> Array:
            x = x[: len(x) // length * length].reshape(-1, length, *x.shape[1:])
            return jnp.moveaxis(x, 2, 1).reshape(-1, length, *x.shape[3:])

        steps, mask, is_first = jax.tree.map(cut, (encoder.step_features(*rollout), mask, rollout[2]))
        mask = mask & (jnp.cumsum(is_first.at[:, 0].set(False), axis=1) == 0)
        half = jax.random.bernoulli(key, 0.5, mask.shape)
        first_half, second_half = mask & half, mask & ~half
        project, whole_pair = jax.vmap(projection_head), first_half.any(1) & second_half.any(1)
        loss, accuracy = info_nce(
            project(steps.pool(first_half)), project(steps.pool(second_half)), whole_pair, self.temperature
        )
        return loss, {"contrast_loss": loss, "contrast_found": accuracy}

    def _make_optimizer(self) -> Adam:
        return Adam(self.learning_rate, self.max_grad_norm)
