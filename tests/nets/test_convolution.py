"""Convolution and pooling against XLA's own: values, gradients of every order, and any nesting of ``vmap``."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.nets.cnn import CNN, is_channels_first
from thespis.nets.convolution import conv2d, max_pool

SHAPES = {
    "plain": ((9, 9, 3), 3, 1, "VALID"),
    "stride": ((13, 12, 2), 4, 2, "VALID"),
    "wide-stride": ((12, 12, 4), 8, 4, "VALID"),
    "padded": ((5, 6, 4), 3, 1, "SAME"),
    "padded-stride": ((9, 8, 3), 3, 2, "SAME"),
    "even-window": ((7, 7, 2), 2, 1, "SAME"),
    "pointwise": ((6, 7, 5), 1, 1, "SAME"),
}


def library_conv(image, kernel, stride=1, padding="VALID"):
    layout = ("NHWC", "HWIO", "NHWC")
    image = image.astype("float32")[None]
    return jax.lax.conv_general_dilated(image, kernel, (stride, stride), padding, dimension_numbers=layout)[0]


def draw(*shape, seed=0):
    return jax.random.normal(jax.random.key(seed), shape)


@pytest.mark.parametrize(("shape", "window", "stride", "padding"), SHAPES.values(), ids=SHAPES)
def test_convolution_and_its_gradients_match_xla(shape, window, stride, padding):
    images, kernel = draw(5, *shape), draw(window, window, shape[-1], 6, seed=1)

    def loss(conv, images, kernel):
        return jnp.sum(jnp.sin(jax.vmap(lambda image: conv(image, kernel, stride, padding))(images)))

    results = [jax.value_and_grad(loss, (1, 2))(conv, images, kernel) for conv in (conv2d, library_conv)]
    for result, expected in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_sum_over_many_rows_is_split_without_losing_one():
    images, kernel = draw(64, 7, 7, 1), draw(2, 2, 1, 3, seed=1)  # 2,304 rows of 4 numbers
    gradients = [
        jax.grad(lambda k, conv=conv: jnp.sum(jnp.sin(jax.vmap(conv, (0, None))(images, k))))(kernel)
        for conv in (conv2d, library_conv)
    ]
    np.testing.assert_allclose(*gradients, rtol=1e-4, atol=1e-4)


DERIVATIVES = {
    "one image": lambda loss, k, x: jax.grad(loss)(k, x[0]),
    "a gradient per image": lambda loss, k, x: jax.vmap(jax.grad(loss), (None, 0))(k, x),
    "a batch": lambda loss, k, x: jax.grad(lambda k: jax.vmap(loss, (None, 0))(k, x).sum())(k),
    "time and rows": lambda loss, k, x: jax.grad(
        lambda k: jax.vmap(jax.vmap(loss, (None, 0)), (None, 0))(k, jnp.stack([x, 2 * x])).sum()
    )(k),
    "kernels of several seeds": lambda loss, k, x: jax.vmap(jax.grad(lambda k: jax.vmap(loss, (None, 0))(k, x).sum()))(
        jnp.stack([k, 2 * k])
    ),
    "forward mode": lambda loss, k, x: jax.jvp(lambda k: loss(k, x[0]), (k,), (k,))[1],
    "recomputed": lambda loss, k, x: jax.grad(jax.checkpoint(lambda k: jax.vmap(loss, (None, 0))(k, x).sum()))(k),
    "second order": lambda loss, k, x: jax.grad(lambda k: jnp.sum(jax.grad(loss)(k, x[0]) ** 2))(k),
    "in a loop": lambda loss, k, x: jax.lax.scan(lambda k, image: (k - 0.01 * jax.grad(loss)(k, image), 0), k, x)[0],
}


@pytest.mark.parametrize("derivative", DERIVATIVES.values(), ids=DERIVATIVES)
def test_derivatives_in_any_order_of_transformations(derivative):
    images, kernel = draw(4, 6, 6, 2), 0.3 * draw(3, 3, 2, 3, seed=1)
    results = [
        jax.jit(lambda k, x, conv=conv: derivative(lambda k, image: jnp.sum(jnp.sin(conv(image, k, 2))), k, x))(
            kernel, images
        )
        for conv in (conv2d, library_conv)
    ]
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("padding", ["VALID", "SAME"])
def test_max_pool_matches_xla(padding):
    image = draw(9, 8, 3)

    def library_pool(x):
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (3, 3, 1), (2, 2, 1), padding)

    np.testing.assert_array_equal(max_pool(image, 3, 2, padding), library_pool(image))
    results = [
        jax.grad(lambda x, f=f: jnp.sum(jnp.sin(f(x))))(image)
        for f in (lambda x: max_pool(x, 3, 2, padding), library_pool)
    ]
    np.testing.assert_allclose(*results, rtol=1e-6)


@pytest.mark.parametrize("shape", [(4, 84, 84), (84, 84, 4), (36, 40), (10, 10, 4)])
def test_bytes_are_read_as_numbers_from_zero_to_one(shape):
    image = jax.random.randint(jax.random.key(0), shape, 0, 256).astype("uint8")
    network = CNN(shape, jax.random.key(1))
    result = network(image)
    np.testing.assert_allclose(result, network(image.astype("float32") / 255), rtol=1e-4, atol=1e-5)
    x = jnp.moveaxis(image, 0, -1) if is_channels_first(shape) else image
    x = x.reshape(*x.shape[:2], -1) / 255
    for kernel, bias, stride in zip(network.kernels, network.biases, network.strides, strict=True):
        x = jax.nn.relu(library_conv(x, kernel, stride) + bias)
    np.testing.assert_allclose(result, x.ravel(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [300, 320])
def test_many_images_are_convolved_in_blocks(count):
    """320 images make five blocks; 300 have no power of 2 above 4 and are left whole."""
    images, kernel = draw(count, 5, 5, 2), draw(3, 3, 2, 4, seed=1)

    def loss(conv, kernel):
        return jnp.sum(jnp.sin(jax.vmap(lambda image: conv(image, kernel))(images)))

    conv = jax.jit(jax.vmap(conv2d, (0, None)))
    np.testing.assert_allclose(conv(images, kernel), jax.vmap(library_conv, (0, None))(images, kernel), atol=1e-5)
    assert ("while" in conv.lower(images, kernel).as_text()) == (count == 320)
    gradients = [jax.grad(loss, 1)(function, kernel) for function in (conv2d, library_conv)]
    np.testing.assert_allclose(*gradients, rtol=1e-4, atol=1e-3)


def test_seeds_do_not_copy_the_rows_of_pixels_again():
    """The gradient under ``vmap`` over one seed reads the rows that the convolution has made: nine copies, not more."""
    images, kernels = draw(1, 4, 9, 9, 3), draw(1, 3, 3, 3, 6, seed=1)

    def gradient(images, kernel):
        return jax.grad(lambda k: jnp.sum(jnp.sin(jax.vmap(lambda image: conv2d(image, k))(images))))(kernel)

    seeds = jax.jit(jax.vmap(gradient)).lower(images, kernels).as_text()
    single = jax.jit(gradient).lower(images[0], kernels[0]).as_text()
    slices = [text.count("tensor<4x7x7x3xf32>") for text in (seeds, single)]
    assert slices[0] == slices[1] > 0
