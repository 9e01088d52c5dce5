"""Residual convolutional networks: blocks that start as the identity, and bodies that use them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from thespis.core.spaces import Box, Discrete, dict_space
from thespis.nets.body import Body, Encoder
from thespis.nets.mlp import orthogonal
from thespis.nets.resnet import ResidualCNN, ResNet

KEY = jax.random.key(0)
BOARD = (4, 3, 2)


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
