"""Convolutional encoders for images: those of Mnih et al. (2015), Young and Tian (2019) and Espeholt et al. (2018).

:class:`ImageEncoder` is the setting that chooses one; without it, the size of the image does.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, Num

from thespis.core.errors import UserError
from thespis.nets.convolution import conv2d, max_pool

ConvLayer = tuple[int, int, int]
"""Filters, window and stride of a layer."""

NATURE_LAYERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
SMALL_LAYERS = ((16, 3, 1),)
NATURE_MIN_PIXELS = 36  # pixels on the shorter side: the large kernels need as many


class CNN(eqx.Module):
    """Convolutional encoder from an image to a flat feature vector.

    ``uint8`` is scaled to ``[0, 1]`` here, so images are passed and stored as bytes. Channels may come last or first:
    the smaller of the first and the last axis is taken as channels. A plain ``[height, width]`` image has one channel.
    """

    kernels: tuple[Float[Array, "window window in out"], ...]
    biases: tuple[Float[Array, " out"], ...]
    strides: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, shape: tuple[int, ...], key: Key[Array, ""], layers: tuple[ConvLayer, ...] | None = None):
        height, width, channels = image_shape(shape)
        if layers is None:
            layers = NATURE_LAYERS if min(height, width) >= NATURE_MIN_PIXELS else SMALL_LAYERS
        init = jax.nn.initializers.orthogonal(2**0.5)
        kernels = []
        for (filters, window, stride), k in zip(layers, jax.random.split(key, len(layers)), strict=True):
            if min(height, width) < window:
                raise UserError(
                    f"an image of {shape} is too small for this encoder: choose another, such as MinAtarCNN"
                )
            kernels.append(init(k, (window, window, channels, filters)))
            height, width, channels = (height - window) // stride + 1, (width - window) // stride + 1, filters
        self.kernels = tuple(kernels)
        self.biases = tuple(jnp.zeros(filters) for filters, _, _ in layers)
        self.strides = tuple(stride for _, _, stride in layers)

    def __call__(self, image: Num[Array, "..."]) -> Float[Array, " features"]:
        """Features of one image."""
        x = channels_last(image)
        for kernel, bias, stride in zip(self.kernels, self.biases, self.strides, strict=True):
            scale = 1 / 255 if x.dtype == jnp.uint8 else 1.0
            x = jax.nn.relu(conv2d(x, kernel * scale, stride) + bias)
        return x.ravel()


class ResidualBlock(eqx.Module):
    """Two convolutions, each after a ReLU, whose result is added to the input."""

    kernels: tuple[Float[Array, "window window in out"], Float[Array, "window window in out"]]
    biases: tuple[Float[Array, " out"], Float[Array, " out"]]

    def __init__(self, channels: int, key: Key[Array, ""]):
        first_key, second_key = jax.random.split(key)
        self.kernels = _fan_in_kernel(channels, channels, first_key), _fan_in_kernel(channels, channels, second_key)
        self.biases = jnp.zeros(channels), jnp.zeros(channels)

    def __call__(self, x: Float[Array, "height width channel"]) -> Float[Array, "height width channel"]:
        """The image plus what the block adds."""
        change = x
        for kernel, bias in zip(self.kernels, self.biases, strict=True):
            change = conv2d(jax.nn.relu(change), kernel, padding="SAME") + bias
        return x + change


class ImpalaNetwork(eqx.Module):
    """Deep residual encoder of IMPALA: for each number of channels a convolution, max pooling and two residual blocks.

    Source: Espeholt et al. (2018), figure 3, without the LSTM. Pooling halves height and width.
    """

    kernels: tuple[Float[Array, "window window in out"], ...]
    biases: tuple[Float[Array, " out"], ...]
    blocks: tuple[tuple[ResidualBlock, ResidualBlock], ...]

    def __init__(self, shape: tuple[int, ...], key: Key[Array, ""], channels: tuple[int, ...]):
        keys = jax.random.split(key, 3 * len(channels)).reshape(-1, 3)
        sizes = (image_shape(shape)[-1], *channels)
        self.kernels = tuple(_fan_in_kernel(a, b, k[0]) for a, b, k in zip(sizes[:-1], channels, keys, strict=True))
        self.biases = tuple(jnp.zeros(size) for size in channels)
        self.blocks = tuple(
            (ResidualBlock(size, k[1]), ResidualBlock(size, k[2])) for size, k in zip(channels, keys, strict=True)
        )

    def __call__(self, image: Num[Array, "..."]) -> Float[Array, " features"]:
        """Features of one image."""
        x = channels_last(image)
        for kernel, bias, blocks in zip(self.kernels, self.biases, self.blocks, strict=True):
            scale = 1 / 255 if x.dtype == jnp.uint8 else 1.0
            x = max_pool(conv2d(x, kernel * scale, padding="SAME") + bias, 3, 2, "SAME")
            for block in blocks:
                x = block(x)
        return jax.nn.relu(x).ravel()


def _fan_in_kernel(in_channels: int, out_channels: int, key: Key[Array, ""]) -> Float[Array, "3 3 in out"]:
    return jax.nn.initializers.lecun_normal()(key, (3, 3, in_channels, out_channels))


def is_channels_first(shape: tuple[int, ...]) -> bool:
    """Whether the first axis holds the channels: it is smaller than the last."""
    return len(shape) == 3 and shape[0] < shape[2]


def image_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Height, width and channels."""
    if len(shape) == 2:
        return shape[0], shape[1], 1
    return (shape[1], shape[2], shape[0]) if is_channels_first(shape) else (shape[0], shape[1], shape[2])


def channels_last(image: Num[Array, "..."]) -> Num[Array, "height width channel"]:
    """An image with its channels last: bytes as they are, everything else as floats."""
    x = jnp.moveaxis(image, 0, -1) if is_channels_first(image.shape) else image
    x = x.reshape(image_shape(image.shape))
    return x if x.dtype == jnp.uint8 else x.astype("float32")


class ImageEncoder(abc.ABC):
    """Setting for the network that each image of an observation passes through."""

    @abc.abstractmethod
    def __call__(self, shape: tuple[int, ...], key: Key[Array, ""]) -> Callable[[Array], Array]:
        """The network with fresh parameters, for images of ``shape``. Raises ``UserError`` if they are too small."""


@dataclasses.dataclass(frozen=True)
class NatureCNN(ImageEncoder):
    """The three convolutional layers of Mnih et al. (2015), for images of 36 pixels and more."""

    def __call__(self, shape: tuple[int, ...], key: Key[Array, ""]) -> CNN:
        """The network with fresh parameters."""
        return CNN(shape, key, NATURE_LAYERS)


@dataclasses.dataclass(frozen=True)
class MinAtarCNN(ImageEncoder):
    """One layer of 3 x 3 windows with ``num_filters`` filters, for grids of a few cells (Young and Tian, 2019)."""

    num_filters: int = 16

    def __call__(self, shape: tuple[int, ...], key: Key[Array, ""]) -> CNN:
        """The network with fresh parameters."""
        return CNN(shape, key, ((self.num_filters, 3, 1),))


@dataclasses.dataclass(frozen=True)
class ImpalaCNN(ImageEncoder):
    """Residual network of IMPALA with ``channels`` in each of its stages (Espeholt et al., 2018)."""

    channels: tuple[int, ...] = (16, 32, 32)

    def __call__(self, shape: tuple[int, ...], key: Key[Array, ""]) -> ImpalaNetwork:
        """The network with fresh parameters."""
        return ImpalaNetwork(shape, key, self.channels)
