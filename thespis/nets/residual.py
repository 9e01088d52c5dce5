"""Residual convolutions for boards (He et al., 2016; Silver et al., 2017), without statistics of a batch."""

from __future__ import annotations

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, Num

Kernel = Float[Array, "window window in out"]
Bias = Float[Array, " out"]


class Convolution(eqx.Module):
    """A convolution that keeps the size of the board."""

    kernel: Kernel
    bias: Bias

    def __init__(self, window: int, channels_in: int, channels: int, key: Key[Array, ""], *, scale: float):
        width = scale * math.sqrt(2.0 / (window * window * channels_in))
        self.kernel = width * jax.random.normal(key, (window, window, channels_in, channels))
        self.bias = jnp.zeros(channels)

    def __call__(self, x: Float[Array, "height width in"]) -> Float[Array, "height width out"]:
        """One board in, one board out."""
        return convolved(x, self.kernel) + self.bias


@jax.custom_vjp
def convolved(x: Float[Array, "height width in"], kernel: Kernel) -> Float[Array, "height width out"]:
    """One board convolved with a kernel of odd size, zeros around it.

    Its gradient is spelt out: in a loop XLA makes the convolution of a kernel's gradient ten times slower on CPUs than
    the product of matrices that it is.
    """
    return jax.lax.conv_general_dilated(x[None], kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))[0]


def _forward(x: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    return convolved(x, kernel), (x, kernel)


def _backward(saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    x, kernel = saved
    (height, width, _), (window, *_) = x.shape, kernel.shape
    around, shifts = window // 2, range(window)
    wide = jnp.pad(x, ((around, around), (around, around), (0, 0)))
    seen = jnp.stack([jnp.stack([wide[i : i + height, j : j + width] for j in shifts]) for i in shifts])
    of_kernel = jnp.einsum("ijhwa,hwb->ijab", seen, gradient)
    return convolved(gradient, kernel[::-1, ::-1].swapaxes(2, 3)), of_kernel


convolved.defvjp(_forward, _backward)


class ResidualCNN(eqx.Module):
    """Board to flat features: one convolution, ``blocks`` of two that are added to what they are given, one narrow.

    A block adds nothing at first (Zhang et al., 2019), so that depth needs no normalising. Channels come last.
    """

    first: Convolution
    blocks: tuple[tuple[Convolution, Convolution], ...]
    last: Convolution

    def __init__(self, shape: tuple[int, ...], key: Key[Array, ""], *, channels: int, blocks: int, kept: int):
        first_key, last_key, *keys = jax.random.split(key, 2 + 2 * blocks)
        self.first = Convolution(3, shape[-1], channels, first_key, scale=1.0)
        self.blocks = tuple(
            (Convolution(3, channels, channels, a, scale=1.0), Convolution(3, channels, channels, b, scale=0.0))
            for a, b in zip(keys[::2], keys[1::2], strict=True)
        )
        self.last = Convolution(1, channels, kept, last_key, scale=1.0)

    def __call__(self, image: Num[Array, "height width in"]) -> Float[Array, " features"]:
        """Features of one board."""
        x = jax.nn.relu(self.first(image.astype("float32")))
        for inner, outer in self.blocks:
            x = jax.nn.relu(x + outer(jax.nn.relu(inner(x))))
        return jax.nn.relu(self.last(x)).ravel()


@dataclasses.dataclass(frozen=True)
class Residual:
    """A :class:`ResidualCNN` of ``blocks`` blocks and ``channels`` channels as a choice; ``kept`` channels come out."""

    channels: int = 32
    blocks: int = 3
    kept: int = 8

    def __call__(self, shape: tuple[int, ...], key: Key[Array, ""]) -> ResidualCNN:
        """The net with its parameters, for boards of ``shape``."""
        return ResidualCNN(shape, key, channels=self.channels, blocks=self.blocks, kept=self.kept)


@dataclasses.dataclass(frozen=True)
class Flat:
    """A board as the vector of its cells."""

    def __call__(self, shape: tuple[int, ...], key: Key[Array, ""]) -> None:
        """No net."""
