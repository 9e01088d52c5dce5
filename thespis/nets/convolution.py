"""Convolution and max pooling of one image, fast on CPUs also inside compiled loops.

In a loop on a CPU, the gradient of XLA's convolution takes more than twenty times as long as outside one. There the
gradient is written as a product of matrices (each output position is a row with the pixels of its window), and mostly
the convolution itself too. On accelerators XLA's own is used throughout.
"""

from __future__ import annotations

import math
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
MAX_WHOLE, BLOCK_SIZE, MIN_BLOCK_SIZE = 256, 64, 16
"""Images are convolved in blocks above the first number; the size of a block is a power of 2 within the others."""
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
    """On CPUs: XLA's convolution where padding would have to be stored, one product elsewhere.

    Many images are convolved block by block, in memory that is used again.
    """
    if padding == "SAME":
        return _library_conv(images, kernel, stride=stride, padding=padding)
    count = images.shape[0]
    size = math.gcd(count, BLOCK_SIZE)
    if count <= MAX_WHOLE or size < MIN_BLOCK_SIZE:
        return _product_conv(images, kernel, stride=stride, padding=padding)
    blocks = images.reshape(count // size, size, *images.shape[1:])
    result = jax.lax.map(lambda block: _product_conv(block, kernel, stride=stride, padding=padding), blocks)
    return result.reshape(count, *result.shape[2:])


def _library_conv(images: Images, kernel: Kernel, *, stride: int, padding: Padding) -> Array:
    dimensions = ("NHWC", "HWIO", "NHWC")
    images = images.astype(kernel.dtype)
    return jax.lax.conv_general_dilated(images, kernel, (stride, stride), padding, dimension_numbers=dimensions)


def _product_conv(images: Images, kernel: Kernel, *, stride: int, padding: Padding) -> Array:
    window, _, _, filters = kernel.shape
    patches = _patches(images, window, stride, padding)
    rows = patches.astype(kernel.dtype).reshape(-1, patches.shape[-1])
    return (rows @ kernel.reshape(-1, filters)).reshape(*patches.shape[:-1], filters)


def _image_gradient(gradient: Array, kernel: Kernel, *, shape: tuple[int, ...], stride: int, padding: Padding) -> Array:
    """The gradient of the images, which have this shape."""

    def conv(images: Images) -> Array:
        return _product_conv(images, kernel, stride=stride, padding=padding)

    return jax.linear_transpose(conv, jax.ShapeDtypeStruct(shape, kernel.dtype))(gradient)[0]


def _kernel_gradient(gradient: Array, images: Images, *, window: int, stride: int, padding: Padding) -> Array:
    patches = _patches(images, window, stride, padding).astype(gradient.dtype)
    rows, values = patches.reshape(-1, patches.shape[-1]), gradient.reshape(-1, gradient.shape[-1])
    return _sum_of_outer_products(values, rows).T.reshape(window, window, images.shape[-1], -1)


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
    if kernel_axis is not None:
        return _separately(conv2d_p, _product_conv, args, axes, options)
    images = jnp.moveaxis(images, images_axis, 0)
    result = conv2d_p.bind(images.reshape(-1, *images.shape[2:]), kernel, **options)
    return result.reshape(*images.shape[:2], *result.shape[1:]), 0


def _batch_image_gradient(args: tuple[Array, Array], axes: tuple[Any, Any], **options: Any) -> tuple[Array, int]:
    (gradient, kernel), (gradient_axis, kernel_axis) = args, axes
    if kernel_axis is not None:
        return _separately(image_gradient_p, _image_gradient, args, axes, options)
    gradient = jnp.moveaxis(gradient, gradient_axis, 0)
    count, images = gradient.shape[:2]
    options["shape"] = (count * images, *options["shape"][1:])
    result = image_gradient_p.bind(gradient.reshape(-1, *gradient.shape[2:]), kernel, **options)
    return result.reshape(count, images, *result.shape[1:]), 0


def _batch_kernel_gradient(args: tuple[Array, Array], axes: tuple[Any, Any], **options: Any) -> tuple[Array, int]:
    return _separately(kernel_gradient_p, _kernel_gradient, args, axes, options)


def _separately(
    primitive: Primitive, function: Any, args: tuple[Array, Array], axes: tuple[Any, Any], options: dict[str, Any]
) -> tuple[Array, int]:
    """One call for each entry of a mapped axis (an ensemble or seeds, mostly one), or batched products if many."""
    count = next(x.shape[axis] for x, axis in zip(args, axes, strict=True) if axis is not None)
    if count > MAX_SEPARATE_KERNELS:
        return jax.vmap(lambda x, y: function(x, y, **options), in_axes=axes)(*args), 0
    rows = [[x] * count if axis is None else list(jnp.moveaxis(x, axis, 0)) for x, axis in zip(args, axes, strict=True)]
    return jnp.stack([primitive.bind(x, y, **options) for x, y in zip(*rows, strict=True)]), 0


def _result_shape(images: Any, kernel: Any, **options: Any) -> Any:
    result = jax.eval_shape(lambda x, k: _library_conv(x, k, **options), images, kernel)
    return jax.core.ShapedArray(result.shape, result.dtype)


def _image_gradient_shape(gradient: Any, kernel: Any, *, shape: tuple[int, ...], **options: Any) -> Any:
    return jax.core.ShapedArray(shape, kernel.dtype)


def _kernel_gradient_shape(gradient: Any, images: Any, *, window: int, **options: Any) -> Any:
    return jax.core.ShapedArray((window, window, images.shape[-1], gradient.shape[-1]), gradient.dtype)


def _primitive(name: str, function: Any, shape: Any, batch: Any, static: tuple[str, ...]) -> Primitive:
    primitive = Primitive(name)
    primitive.def_impl(jax.jit(function, static_argnames=static))
    primitive.def_abstract_eval(shape)
    mlir.register_lowering(primitive, mlir.lower_fun(function, multiple_results=False))
    batching.primitive_batchers[primitive] = batch
    return primitive


# The gradients are primitives too: seeds and ensembles are often mapped over after the gradient has been taken.
conv2d_p = _primitive("conv2d", _conv, _result_shape, _batch, ("stride", "padding"))
"""Convolution of a batch of images: bilinear, with gradients of its own."""
image_gradient_p = _primitive(
    "conv2d_image_gradient",
    _image_gradient,
    _image_gradient_shape,
    _batch_image_gradient,
    ("shape", "stride", "padding"),
)
kernel_gradient_p = _primitive(
    "conv2d_kernel_gradient",
    _kernel_gradient,
    _kernel_gradient_shape,
    _batch_kernel_gradient,
    ("window", "stride", "padding"),
)

# Each is bilinear, and its gradients are the other two.
ad.defbilinear(
    conv2d_p,
    lambda gradient, images, kernel, **how: image_gradient_p.bind(gradient, kernel, shape=images.aval.shape, **how),
    lambda gradient, images, kernel, **how: kernel_gradient_p.bind(
        gradient, images, window=kernel.aval.shape[0], **how
    ),
)
ad.defbilinear(
    image_gradient_p,
    lambda images, gradient, kernel, *, shape, **how: conv2d_p.bind(images, kernel, **how),
    lambda images, gradient, kernel, *, shape, **how: kernel_gradient_p.bind(
        gradient, images, window=kernel.aval.shape[0], **how
    ),
)
ad.defbilinear(
    kernel_gradient_p,
    lambda kernel, gradient, images, *, window, **how: conv2d_p.bind(images, kernel, **how),
    lambda kernel, gradient, images, *, window, **how: image_gradient_p.bind(
        gradient, kernel, shape=images.aval.shape, **how
    ),
)
