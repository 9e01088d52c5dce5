"""Convolutional encoders for images: that of Mnih et al. (2015), and a small one for grids of a few cells."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, Num

from thespis.nets.convolution import conv2d

# (filters, window, stride) of each layer
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
    channels_first: bool = eqx.field(static=True)

    def __init__(self, shape: tuple[int, ...], key: Key[Array, ""]):
        self.channels_first = len(shape) == 3 and shape[0] < shape[2]
        height, width, channels = self._image_shape(shape)
        layers = NATURE_LAYERS if min(height, width) >= NATURE_MIN_PIXELS else SMALL_LAYERS
        init = jax.nn.initializers.orthogonal(2**0.5)
        kernels = []
        for (filters, window, _), k in zip(layers, jax.random.split(key, len(layers)), strict=True):
            kernels.append(init(k, (window, window, channels, filters)))
            channels = filters
        self.kernels = tuple(kernels)
        self.biases = tuple(jnp.zeros(filters) for filters, _, _ in layers)
        self.strides = tuple(stride for _, _, stride in layers)

    def _image_shape(self, shape: tuple[int, ...]) -> tuple[int, int, int]:
        if len(shape) == 2:
            return shape[0], shape[1], 1
        return (shape[1], shape[2], shape[0]) if self.channels_first else (shape[0], shape[1], shape[2])

    def __call__(self, image: Num[Array, "..."]) -> Float[Array, " features"]:
        """Features of one image."""
        x = jnp.moveaxis(image, 0, -1) if self.channels_first else image
        x = x.reshape(self._image_shape(image.shape))
        x = x if x.dtype == jnp.uint8 else x.astype("float32")
        for kernel, bias, stride in zip(self.kernels, self.biases, self.strides, strict=True):
            scale = 1 / 255 if x.dtype == jnp.uint8 else 1.0
            x = jax.nn.relu(conv2d(x, kernel * scale, stride) + bias)
        return x.ravel()
