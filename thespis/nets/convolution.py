"""Convolution and max pooling of one image, fast on CPUs also inside compiled loops.

In a loop on a CPU, the gradient of XLA's convolution takes more than twenty times as long as outside one. There the
gradient is written as a product of matrices (each output position is a row with the pixels of its window), and mostly
the convolution itself too. On accelerators XLA's own is used throughout.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.core
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float, Num

Padding = Literal["VALID", "SAME"]
MIN_ROWS_TO_SPLIT = 8
"""A sum over so many rows for each column of the result is split in two halves, one for each of two cores."""
MAX_SEPARATE_KERNELS = 16
"""Up to so many kernels that ``vmap`` maps over have a product each; more of them share a batched one."""


def conv2d(
    image: Num[Array, "height width in"],
    kernel: Float[Array, "window window in out"],
    stride: int = 1,
    padding: Padding = "VALID",
) -> Float[Array, "new_height new_width out"]:
    """Convolve one image, channels last. Bytes are read as numbers from 0 to 255.

    ``SAME`` pads with zeros, so that the new height is that of the image divided by ``stride``, rounded up.
    """
    conv = conv2d_p.bind if jax.default_backend() == "cpu" else _library_conv
    return conv(image[None], kernel, stride=stride, padding=padding)[0]


def max_pool(
    image: Float[Array, "height width channel"], window: int, stride: int, padding: Padding = "VALID"
) -> Float[Array, "new_height new_width channel"]:
    """Largest value of each window and channel. Equal values share the gradient."""
    pieces = _window_slices(_pad(image[None], window, stride, padding, -jnp.inf), window, stride)
    result = pieces[0]
    for piece in pieces[1:]:
        result = jnp.maximum(result, piece)
    return result[0]


# One primitive for a batch of images. ``vmap`` of single operations would give XLA arrays of five axes and more, the
# largest of which it would transpose in the gradient, which takes as long as all the rest. This one puts the images of
# all axes into one batch before a gradient is taken.

Images = Num[Array, "image height width in"]
Kernel = Float[Array, "window window in out"]


def _conv(images: Images, kernel: Kernel, *, stride: int, padding: Padding) -> Array:
    """On CPUs: XLA's convolution where padding would have to be stored, one product elsewhere."""
    form = _library_conv if padding == "SAME" else _product_conv
    return form(images, kernel, stride=stride, padding=padding)


def _library_conv(images: Images, kernel: Kernel, *, stride: int, padding: Padding) -> Array:
    dimensions = ("NHWC", "HWIO", "NHWC")
    images = images.astype(kernel.dtype)
    return jax.lax.conv_general_dilated(images, kernel, (stride, stride), padding, dimension_numbers=dimensions)


def _product_conv(images: Images, kernel: Kernel, *, stride: int, padding: Padding) -> Array:
    window, _, _, filters = kernel.shape
    patches = _patches(images, window, stride, padding)
    rows = patches.astype(kernel.dtype).reshape(-1, patches.shape[-1])
    return (rows @ kernel.reshape(-1, filters)).reshape(*patches.shape[:-1], filters)


def _image_gradient(gradient: Array, images: Any, kernel: Kernel, *, stride: int, padding: Padding) -> Array:
    def conv(images: Images) -> Array:
        return _product_conv(images, kernel, stride=stride, padding=padding)

    return jax.linear_transpose(conv, images.aval)(gradient)[0]


def _kernel_gradient(gradient: Array, images: Images, kernel: Any, *, stride: int, padding: Padding) -> Array:
    window, _, channels, filters = kernel.aval.shape
    patches = _patches(images, window, stride, padding).astype(gradient.dtype)
    rows, values = patches.reshape(-1, patches.shape[-1]), gradient.reshape(-1, filters)
    return _sum_of_outer_products(values, rows).T.reshape(window, window, channels, filters)


def _sum_of_outer_products(a: Float[Array, "row left"], b: Float[Array, "row right"]) -> Float[Array, "left right"]:
    """The product ``a.T @ b`` with sums over many rows."""
    count, width = b.shape
    if count % 2 or count < MIN_ROWS_TO_SPLIT * width:
        return a.T @ b
    halves = a.reshape(2, count // 2, -1), b.reshape(2, count // 2, -1)
    return jax.lax.dot_general(*halves, (((1,), (1,)), ((0,), (0,)))).sum(0)


def _patches(
    images: Images, window: int, stride: int, padding: Padding
) -> Num[Array, "image new_height new_width patch"]:
    """The pixels of each window; bytes as long as the images are bytes."""
    return jnp.concatenate(_window_slices(_pad(images, window, stride, padding), window, stride), axis=-1)


def _window_slices(images: Images, window: int, stride: int) -> list[Array]:
    """For each position in the window, the pixels at that position of all windows."""
    count, height, width, channels = images.shape
    end = [stride * ((size - window) // stride) + 1 for size in (height, width)]
    return [
        jax.lax.slice(images, (0, i, j, 0), (count, i + end[0], j + end[1], channels), (1, stride, stride, 1))
        for i in range(window)
        for j in range(window)
    ]


def _pad(images: Images, window: int, stride: int, padding: Padding, value: float = 0.0) -> Array:
    if padding == "VALID":
        return images
    before_and_after = jax.lax.padtype_to_pads(images.shape[1:3], (window, window), (stride, stride), padding)
    return jnp.pad(images, ((0, 0), *before_and_after, (0, 0)), constant_values=value)


def _batch(args: tuple[Array, Array], axes: tuple[Any, Any], **options: Any) -> tuple[Array, int]:
    (images, kernel), (images_axis, kernel_axis) = args, axes
    if kernel_axis is not None and kernel.shape[kernel_axis] > MAX_SEPARATE_KERNELS:
        return jax.vmap(lambda x, k: _product_conv(x, k, **options), in_axes=axes)(images, kernel), 0
    if kernel_axis is not None:  # an ensemble, mostly of one member
        kernels = jnp.moveaxis(kernel, kernel_axis, 0)
        batches = [images] * len(kernels) if images_axis is None else jnp.moveaxis(images, images_axis, 0)
        return jnp.stack([conv2d_p.bind(x, k, **options) for x, k in zip(batches, kernels, strict=True)]), 0
    images = jnp.moveaxis(images, images_axis, 0)
    result = conv2d_p.bind(images.reshape(-1, *images.shape[2:]), kernel, **options)
    return result.reshape(*images.shape[:2], *result.shape[1:]), 0


def _result_shape(images: Any, kernel: Any, **options: Any) -> Any:
    result = jax.eval_shape(lambda x, k: _library_conv(x, k, **options), images, kernel)
    return jax.core.ShapedArray(result.shape, result.dtype)


conv2d_p = Primitive("conv2d")
"""Convolution of a batch of images: bilinear, with gradients of its own."""
conv2d_p.def_impl(jax.jit(_conv, static_argnames=("stride", "padding")))
conv2d_p.def_abstract_eval(_result_shape)
mlir.register_lowering(conv2d_p, mlir.lower_fun(_conv, multiple_results=False))
ad.defbilinear(conv2d_p, _image_gradient, _kernel_gradient)
batching.primitive_batchers[conv2d_p] = _batch
