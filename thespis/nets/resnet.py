"""Residual convolutional networks for boards (He et al., 2016; Silver et al., 2017), without batch normalisation."""

from __future__ import annotations

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, Num

from thespis.nets.cnn import ImageEncoder
from thespis.nets.convolution import conv2d

Kernel = Float[Array, "window window in out"]
Bias = Float[Array, " out"]


class BoardConv(eqx.Module):
    """Convolution that keeps the size of the board."""

    kernel: Kernel
    bias: Bias

    def __init__(
        self, kernel_size: int, in_channels: int, out_channels: int, key: Key[Array, ""], *, init_scale: float
    ):
        std = init_scale * math.sqrt(2.0 / (kernel_size * kernel_size * in_channels))
        self.kernel = std * jax.random.normal(key, (kernel_size, kernel_size, in_channels, out_channels))
        self.bias = jnp.zeros(out_channels)

    def __call__(self, x: Float[Array, "height width in"]) -> Float[Array, "height width out"]:
        """One board in, one board out."""
        return conv2d(x, self.kernel, padding="SAME") + self.bias


class ResidualCNN(eqx.Module):
    """Residual encoder from a board to flat features: a convolution, ``blocks`` of two with a skip, a narrow one.

    A block adds nothing at first (Zhang et al., 2019), so that depth needs no normalisation. Channels come last.
    """

    input_conv: BoardConv
    blocks: tuple[tuple[BoardConv, BoardConv], ...]
    output_conv: BoardConv

    def __init__(
        self, shape: tuple[int, ...], key: Key[Array, ""], *, channels: int, num_blocks: int, out_channels: int
    ):
        first_key, last_key, *keys = jax.random.split(key, 2 + 2 * num_blocks)
        self.input_conv = BoardConv(3, shape[-1], channels, first_key, init_scale=1.0)
        self.blocks = tuple(
            (BoardConv(3, channels, channels, a, init_scale=1.0), BoardConv(3, channels, channels, b, init_scale=0.0))
            for a, b in zip(keys[::2], keys[1::2], strict=True)
        )
        self.output_conv = BoardConv(1, channels, out_channels, last_key, init_scale=1.0)

    def __call__(self, image: Num[Array, "height width in"]) -> Float[Array, " features"]:
        """Features of one board."""
        x = jax.nn.relu(self.input_conv(image.astype("float32")))
        for inner, outer in self.blocks:
            x = jax.nn.relu(x + outer(jax.nn.relu(inner(x))))
        return jax.nn.relu(self.output_conv(x)).ravel()


@dataclasses.dataclass(frozen=True)
class ResNet(ImageEncoder):
    """Settings of a :class:`ResidualCNN`: ``num_blocks`` blocks with ``channels``, and ``out_channels`` at the end."""

    channels: int = 32
    num_blocks: int = 3
    out_channels: int = 8

    def __call__(self, shape: tuple[int, ...], key: Key[Array, ""]) -> ResidualCNN:
        """The network with fresh parameters, for boards of ``shape``."""
        return ResidualCNN(
            shape, key, channels=self.channels, num_blocks=self.num_blocks, out_channels=self.out_channels
        )
