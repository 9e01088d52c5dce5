"""Rotary position embeddings (Su et al., 2021) and the ways in which checkpoints extend them to longer texts.

Pair ``i`` of a head's features is rotated by the angle ``position * frequency[i]``. Pairs consist of one feature of the
first and one of the second half of a head, as in Llama's checkpoints.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


@runtime_checkable
class RotaryEmbedding(Protocol):
    """Interface of rotary embeddings: frequencies of the pairs of a head, and the factor of cosines and sines."""

    @property
    def attention_scaling(self) -> float:
        """The factor of cosines and sines."""
        ...

    def frequencies(self, size: int) -> Float[np.ndarray, " pair"]:
        """Radians per position of each of the ``size / 2`` pairs."""
        ...


@dataclasses.dataclass(frozen=True)
class DefaultRope:
    """Plain rotary embedding: frequencies fall geometrically from 1 to ``1 / theta``."""

    theta: float = 10_000.0

    @property
    def attention_scaling(self) -> float:
        """Factor of cosines and sines: 1."""
        return 1.0

    def frequencies(self, size: int) -> Float[np.ndarray, " pair"]:
        """Rotation frequencies in radians per position."""
        return self.theta ** (-np.arange(0, size, 2) / size)


@dataclasses.dataclass(frozen=True)
class LinearRope:
    """Rotary embedding with linear position interpolation: all positions divided by ``factor`` (Chen et al., 2023)."""

    theta: float
    factor: float

    @property
    def attention_scaling(self) -> float:
        """Factor of cosines and sines: 1."""
        return 1.0

    def frequencies(self, size: int) -> Float[np.ndarray, " pair"]:
        """Rotation frequencies in radians per position."""
        return DefaultRope(self.theta).frequencies(size) / self.factor


@dataclasses.dataclass(frozen=True)
class Llama3Rope:
    """Rotary embedding of Llama 3.1: frequencies of slow pairs are divided by ``factor``, those of fast pairs kept.

    Frequencies between them are blended. A pair is slow if it turns fewer than ``low_freq_factor`` times over
    ``original_max_positions``, fast if it turns more than ``high_freq_factor`` times.
    """

    theta: float
    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_positions: int

    @property
    def attention_scaling(self) -> float:
        """Factor of cosines and sines: 1."""
        return 1.0

    def frequencies(self, size: int) -> Float[np.ndarray, " pair"]:
        """Rotation frequencies in radians per position."""
        plain = DefaultRope(self.theta).frequencies(size)
        turns = self.original_max_positions * plain / (2 * math.pi)
        weight = np.clip((turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor), 0.0, 1.0)
        return plain * (weight + (1 - weight) / self.factor)


@dataclasses.dataclass(frozen=True)
class YarnRope:
    """YaRN rotary embedding (Peng et al., 2023).

    It is as :class:`Llama3Rope`, with a blend linear in the pair's index and sharper attention.

    ``attention_factor``: the factor of cosines and sines; ``None``: ``0.1 ln(factor) + 1``.
    """

    theta: float
    factor: float
    original_max_positions: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None

    @property
    def attention_scaling(self) -> float:
        """The factor of cosines and sines."""
        if self.attention_factor is not None:
            return self.attention_factor
        return 0.1 * math.log(self.factor) + 1.0 if self.factor > 1 else 1.0

    def frequencies(self, size: int) -> Float[np.ndarray, " pair"]:
        """Rotation frequencies in radians per position."""
        plain = DefaultRope(self.theta).frequencies(size)
        low = max(math.floor(self._pair_index(self.beta_fast, size)), 0)
        high = min(math.ceil(self._pair_index(self.beta_slow, size)), size - 1)
        blend = np.clip((np.arange(size // 2) - low) / max(high - low, 1e-3), 0.0, 1.0)
        return plain * (1 - blend + blend / self.factor)

    def _pair_index(self, num_rotations: float, size: int) -> float:
        """The (fractional) index of the pair that turns ``num_rotations`` times over the original length."""
        return size * math.log(self.original_max_positions / (num_rotations * 2 * math.pi)) / (2 * math.log(self.theta))


def rotary_cos_sin(
    rotary: RotaryEmbedding, head_dim: int, positions: Int[Array, "*time"]
) -> tuple[Float[Array, "*time 1 pair"], Float[Array, "*time 1 pair"]]:
    """Cosines and sines of the positions, in float32, for :func:`apply_rotary`; the same for all heads."""
    angles = positions.astype("float32")[..., None, None] * jnp.asarray(rotary.frequencies(head_dim), "float32")
    return jnp.cos(angles) * rotary.attention_scaling, jnp.sin(angles) * rotary.attention_scaling


def apply_rotary(x: Float[Array, "*time head size"], cos_sin: tuple[Array, Array]) -> Float[Array, "*time head size"]:
    """Rotate heads by their positions, in the dtype of ``x``."""
    cos, sin = (part.astype(x.dtype) for part in cos_sin)
    cos_both, signed_sin = jnp.concatenate([cos, cos], axis=-1), jnp.concatenate([-sin, sin], axis=-1)
    # The halves are swapped by a roll: XLA on CPUs would compute two new halves and then join them.
    return x * cos_both + jnp.roll(x, x.shape[-1] // 2, axis=-1) * signed_sin
