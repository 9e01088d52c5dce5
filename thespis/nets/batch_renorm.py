"""Batch renormalization (Ioffe, 2017, arXiv:1702.03275), and multi-layer perceptrons with it.

A layer normalizes by statistics that are no parameters: they are passed in, so that optimizers do not see them. Called
with one vector, it uses running statistics. ``train`` takes a batch, normalizes by the batch's own statistics, and
returns the updated running ones. In the first ``num_warmup_batches`` it is plain batch normalization; later batches are
corrected towards the running statistics, within bounds.
"""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.nets.mlp import Linear, uniform_fan_in


class BatchStatistics(eqx.Module):
    """Running mean and variance of each feature, and the number of batches that they have seen."""

    mean: Float[Array, " features"]
    variance: Float[Array, " features"]
    num_batches: Int[Array, ""]


class BatchRenorm(eqx.Module):
    """Batch renormalization layer with a scale and a bias for each feature."""

    scale: Float[Array, " features"]
    bias: Float[Array, " features"]
    num_warmup_batches: int = eqx.field(static=True)
    momentum: float = eqx.field(static=True, default=0.99)
    """Weight of the old running statistics at each batch."""
    eps: float = eqx.field(static=True, default=1e-3)
    max_ratio: float = eqx.field(static=True, default=3.0)
    """Bound of the correction of the scale, ``r`` in the paper: in [1 / max_ratio, max_ratio]."""
    max_shift: float = eqx.field(static=True, default=5.0)
    """Bound of the correction of the mean, ``d`` in the paper, in running standard deviations."""

    @classmethod
    def build(cls, size: int, num_warmup_batches: int) -> BatchRenorm:
        """A layer that does not scale or shift."""
        return cls(jnp.ones(size), jnp.zeros(size), num_warmup_batches)

    def init_statistics(self) -> BatchStatistics:
        """Statistics before the first batch: mean 0, variance 1."""
        return BatchStatistics(jnp.zeros_like(self.bias), jnp.ones_like(self.scale), jnp.zeros((), "int32"))

    def __call__(self, statistics: BatchStatistics, x: Float[Array, " features"]) -> Float[Array, " features"]:
        """One vector, normalized by the running statistics."""
        return (x - statistics.mean) * jax.lax.rsqrt(statistics.variance + self.eps) * self.scale + self.bias

    def train(
        self,
        statistics: BatchStatistics,
        x: Float[Array, "batch features"],
        weight: Float[Array, " batch"],
    ) -> tuple[Float[Array, "batch features"], BatchStatistics]:
        """A batch, normalized by its own statistics, and the running statistics afterwards.

        ``weight`` of the rows adds up to 1. The gradient passes through the batch's mean and variance, and not through
        the corrections (the paper's algorithm 1).
        """
        mean = sum_rows(weight, x)
        # The variance does not change with the mean to first order, so its gradient needs no second sum.
        variance = sum_rows(weight, jnp.square(x - jax.lax.stop_gradient(mean)))
        running_std = jnp.sqrt(statistics.variance + self.eps)
        ratio = jnp.clip(jnp.sqrt(variance + self.eps) / running_std, 1.0 / self.max_ratio, self.max_ratio)
        shift = jnp.clip((mean - statistics.mean) / running_std, -self.max_shift, self.max_shift)
        is_warm = statistics.num_batches >= self.num_warmup_batches
        ratio = jax.lax.stop_gradient(jnp.where(is_warm, ratio, 1.0))
        shift = jax.lax.stop_gradient(jnp.where(is_warm, shift, 0.0))
        centered = x - repeat_row(mean, x.shape[0])
        scale = jax.lax.rsqrt(variance + self.eps) * ratio * self.scale
        normalized = centered * repeat_row(scale, x.shape[0])
        keep = self.momentum
        running = BatchStatistics(
            jax.lax.stop_gradient(keep * statistics.mean + (1.0 - keep) * mean),
            jax.lax.stop_gradient(keep * statistics.variance + (1.0 - keep) * variance),
            statistics.num_batches + 1,
        )
        return normalized + repeat_row(shift * self.scale + self.bias, x.shape[0]), running


@jax.custom_batching.custom_vmap
def _matrix_product(weight: Float[Array, "*batch rows"], x: Float[Array, "*batch rows features"]) -> Array:
    return jnp.einsum("...r,...rf->...f", weight, x)


@_matrix_product.def_vmap
def _batched_matrix_product(axis_size: int, in_batched: list[bool], weight: Array, x: Array) -> tuple[Array, bool]:
    # With the weight repeated, no transposed copy of x is needed.
    weight, x = (
        value if batched else jnp.broadcast_to(value, (axis_size, *value.shape))
        for value, batched in zip((weight, x), in_batched, strict=True)
    )
    return _matrix_product(weight, x), True


@jax.custom_vjp
def _sum_rows(weight: Float[Array, " rows"], x: Float[Array, "rows features"]) -> Float[Array, " features"]:
    return _matrix_product(weight, x)


_sum_rows.defvjp(
    lambda weight, x: (_matrix_product(weight, x), (weight, x)),
    lambda residuals, gradient: (residuals[1] @ gradient, residuals[0][:, None] * gradient),
)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _repeat_row(row: Float[Array, " features"], num_rows: int) -> Float[Array, "rows features"]:
    return jnp.broadcast_to(row, (num_rows, row.shape[0]))


_repeat_row.defvjp(
    lambda row, num_rows: (jnp.broadcast_to(row, (num_rows, row.shape[0])), None),
    lambda num_rows, _, gradient: (_matrix_product(jnp.ones(num_rows), gradient),),
)


def sum_rows(weight: Float[Array, " rows"], x: Float[Array, "rows features"]) -> Float[Array, " features"]:
    """Weighted sum of the rows, as a matrix product: on CPUs faster than a sum down the columns."""
    return jnp.asarray(_sum_rows(weight, x))


def repeat_row(row: Float[Array, " features"], num_rows: int) -> Float[Array, "rows features"]:
    """``row``, ``num_rows`` times; its gradient is summed by a matrix product."""
    return jnp.asarray(_repeat_row(row, num_rows))


class BatchRenormMLP(eqx.Module):
    """Multi-layer perceptron without an output layer: its input and every layer after its ReLU are renormalized."""

    input_norm: BatchRenorm
    layers: tuple[Linear, ...]
    norms: tuple[BatchRenorm, ...]

    def __init__(self, in_size: int, hidden_sizes: tuple[int, ...], key: Key[Array, ""], *, num_warmup_batches: int):
        sizes = (in_size, *hidden_sizes)
        keys = jax.random.split(key, max(len(hidden_sizes), 1))
        self.input_norm = BatchRenorm.build(in_size, num_warmup_batches)
        self.layers = tuple(
            Linear(a, b, uniform_fan_in, k) for a, b, k in zip(sizes[:-1], sizes[1:], keys, strict=False)
        )
        self.norms = tuple(BatchRenorm.build(size, num_warmup_batches) for size in hidden_sizes)

    def init_statistics(self) -> tuple[BatchStatistics, ...]:
        """Running statistics of the input and of every layer."""
        return tuple(norm.init_statistics() for norm in (self.input_norm, *self.norms))

    def __call__(self, statistics: tuple[BatchStatistics, ...], x: Float[Array, " in"]) -> Float[Array, " out"]:
        """Features of one vector, by the running statistics."""
        x = self.input_norm(statistics[0], x)
        for layer, norm, running in zip(self.layers, self.norms, statistics[1:], strict=True):
            x = norm(running, jax.nn.relu(layer(x)))
        return x

    def train(
        self,
        statistics: tuple[BatchStatistics, ...],
        x: Float[Array, "batch in"],
        mask: Bool[Array, " batch"] | None = None,
    ) -> tuple[Float[Array, "batch out"], tuple[BatchStatistics, ...]]:
        """Features of a batch, by its own statistics over the rows in ``mask``, and the running statistics."""
        weight = jnp.ones(x.shape[0]) if mask is None else mask.astype("float32")
        weight = weight / jnp.maximum(jnp.sum(weight), 1.0)
        x, running = self.input_norm.train(statistics[0], x, weight)
        updated = [running]
        for layer, norm, before in zip(self.layers, self.norms, statistics[1:], strict=True):
            x, running = norm.train(before, jax.nn.relu(x @ layer.weight + repeat_row(layer.bias, x.shape[0])), weight)
            updated.append(running)
        return x, tuple(updated)
