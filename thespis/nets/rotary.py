"""Rotary position embeddings (Su et al., 2021) and the ways in which checkpoints stretch them to longer texts.

A pair of features ``i`` of a head is turned by the angle ``position * frequency[i]``. The pairs are the first and the
second half of a head, as Llama's checkpoints lay them out.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


@runtime_checkable
class Rotary(Protocol):
    """Frequencies of the pairs of a head, and what multiplies cosines and sines."""

    @property
    def scale(self) -> float:
        """What multiplies cosines and sines."""
        ...

    def frequencies(self, size: int) -> Float[np.ndarray, " pair"]:
        """Radians per position of each of the ``size / 2`` pairs."""
        ...


@dataclasses.dataclass(frozen=True)
class Plain:
    """Frequencies fall geometrically from 1 to ``1 / theta``."""

    theta: float = 10_000.0

    @property
    def scale(self) -> float:
        """One."""
        return 1.0

    def frequencies(self, size: int) -> Float[np.ndarray, " pair"]:
        """Radians per position."""
        return self.theta ** (-np.arange(0, size, 2) / size)


@dataclasses.dataclass(frozen=True)
class Interpolated:
    """All positions divided by ``factor`` (Chen et al., 2023)."""

    theta: float
    factor: float

    @property
    def scale(self) -> float:
        """One."""
        return 1.0

    def frequencies(self, size: int) -> Float[np.ndarray, " pair"]:
        """Radians per position."""
        return Plain(self.theta).frequencies(size) / self.factor


@dataclasses.dataclass(frozen=True)
class Banded:
    """Llama 3.1: slow pairs divided by ``factor``, quick ones kept, those between blended.

    A pair is slow if it turns less than ``slow`` times over the ``original`` length, quick if more than ``quick``.
    """

    theta: float
    factor: float
    slow: float
    quick: float
    original: int

    @property
    def scale(self) -> float:
        """One."""
        return 1.0

    def frequencies(self, size: int) -> Float[np.ndarray, " pair"]:
        """Radians per position."""
        plain = Plain(self.theta).frequencies(size)
        turns = self.original * plain / (2 * math.pi)
        kept = np.clip((turns - self.slow) / (self.quick - self.slow), 0.0, 1.0)
        return plain * (kept + (1 - kept) / self.factor)


@dataclasses.dataclass(frozen=True)
class Yarn:
    """YaRN (Peng et al., 2023): as :class:`Banded`, the blend linear in the pair's number, and attention sharpened.

    ``attention``: what multiplies cosines and sines; ``None``: ``0.1 ln(factor) + 1``.
    """

    theta: float
    factor: float
    original: int
    quick: float = 32.0
    slow: float = 1.0
    attention: float | None = None

    @property
    def scale(self) -> float:
        """What multiplies cosines and sines."""
        if self.attention is not None:
            return self.attention
        return 0.1 * math.log(self.factor) + 1.0 if self.factor > 1 else 1.0

    def frequencies(self, size: int) -> Float[np.ndarray, " pair"]:
        """Radians per position."""
        plain = Plain(self.theta).frequencies(size)
        low = max(math.floor(self._pair(self.quick, size)), 0)
        high = min(math.ceil(self._pair(self.slow, size)), size - 1)
        blend = np.clip((np.arange(size // 2) - low) / max(high - low, 1e-3), 0.0, 1.0)
        return plain * (1 - blend + blend / self.factor)

    def _pair(self, turns: float, size: int) -> float:
        """The number, not whole, of the pair that turns so many times over the original length."""
        return size * math.log(self.original / (turns * 2 * math.pi)) / (2 * math.log(self.theta))


def turns(
    rotary: Rotary, size: int, positions: Int[Array, "*time"]
) -> tuple[Float[Array, "*time 1 pair"], Float[Array, "*time 1 pair"]]:
    """Cosines and sines of the positions, in float32: :func:`turned`'s arguments, the same for all heads."""
    angles = positions.astype("float32")[..., None, None] * jnp.asarray(rotary.frequencies(size), "float32")
    return jnp.cos(angles) * rotary.scale, jnp.sin(angles) * rotary.scale


def turned(x: Float[Array, "*time head size"], by: tuple[Array, Array]) -> Float[Array, "*time head size"]:
    """Heads turned to their positions, in the dtype of ``x``."""
    cos, sin = (part.astype(x.dtype) for part in by)
    both, signed = jnp.concatenate([cos, cos], axis=-1), jnp.concatenate([-sin, sin], axis=-1)
    # Halves changed over by a roll: XLA on CPUs would compute two new halves apart and then put them together.
    return x * both + jnp.roll(x, x.shape[-1] // 2, axis=-1) * signed
