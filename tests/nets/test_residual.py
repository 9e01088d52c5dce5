"""Residual convolutional networks: custom gradient against JAX's convolution, and blocks that start as identity."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from thespis.core.spaces import Box, Discrete, dict_space
from thespis.nets.body import Body, Encoder
from thespis.nets.mlp import orthogonal
from thespis.nets.resnet import ResidualCNN, ResNet, conv2d_same

KEY = jax.random.key(0)
BOARD = (4, 3, 2)


def test_convolution_gradient_matches_jax():
    x, kernel = jax.random.normal(KEY, (5, 6, 7, 3)), jax.random.normal(jax.random.key(1), (3, 3, 3, 4))

    def ours(x, kernel):
        return jnp.sum(jnp.sin(jax.vmap(conv2d_same, in_axes=(0, None))(x, kernel)))

    def reference(x, kernel):
        layout = ("NHWC", "HWIO", "NHWC")
        return jnp.sum(jnp.sin(jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=layout)))

    for result, expected in zip(jax.grad(ours, (0, 1))(x, kernel), jax.grad(reference, (0, 1))(x, kernel), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_residual_blocks_are_initially_the_identity():
    board = jax.random.normal(KEY, BOARD)
    network = ResidualCNN(BOARD, KEY, channels=5, num_blocks=2, out_channels=3)
    x = jax.nn.relu(network.input_conv(board))
    np.testing.assert_array_equal(network(board), jax.nn.relu(network.output_conv(x)).ravel())
    perturbed = jax.tree.map(lambda leaf: leaf + 0.1, network)
    x = jax.nn.relu(perturbed.input_conv(board))
    assert not np.allclose(perturbed(board), jax.nn.relu(perturbed.output_conv(x)).ravel())


def test_body_uses_the_given_image_encoder():
    space = dict_space(seat=Discrete(2), seen=Box(BOARD, 0.0, 1.0))
    obs = {"seat": jnp.int32(1), "seen": jax.random.uniform(KEY, BOARD)}
    flat = Encoder(space, KEY, None)
    np.testing.assert_array_equal(flat(obs), np.concatenate([[0, 1], np.ravel(obs["seen"])]).astype("float32"))
    body = Body(space, (6,), KEY, init=orthogonal(1.0), activation=jnp.tanh, image_encoder=ResNet(5, 1, 3))
    assert body.encoder.feature_size == 2 + 4 * 3 * 3 and body((), obs)[0].shape == (6,)
