"""Residual convolutions: the gradient that is spelt out is that of the convolution; blocks begin by adding nothing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from thespis.core.spaces import Box, Discrete, dict_space
from thespis.nets.body import Body, Encoder
from thespis.nets.mlp import orthogonal
from thespis.nets.residual import Flat, Residual, ResidualCNN, convolved

KEY = jax.random.key(0)
BOARD = (4, 3, 2)


def test_the_gradient_of_a_convolution_is_that_of_jax():
    x, kernel = jax.random.normal(KEY, (5, 6, 7, 3)), jax.random.normal(jax.random.key(1), (3, 3, 3, 4))

    def ours(x, kernel):
        return jnp.sum(jnp.sin(jax.vmap(convolved, in_axes=(0, None))(x, kernel)))

    def jaxs(x, kernel):
        layout = ("NHWC", "HWIO", "NHWC")
        return jnp.sum(jnp.sin(jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=layout)))

    for mine, other in zip(jax.grad(ours, (0, 1))(x, kernel), jax.grad(jaxs, (0, 1))(x, kernel), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-4)


def test_a_block_adds_nothing_at_first():
    board = jax.random.normal(KEY, BOARD)
    deep = ResidualCNN(BOARD, KEY, channels=5, blocks=2, kept=3)
    x = jax.nn.relu(deep.first(board))
    np.testing.assert_array_equal(deep(board), jax.nn.relu(deep.last(x)).ravel())
    moved = jax.tree.map(lambda leaf: leaf + 0.1, deep)
    x = jax.nn.relu(moved.first(board))
    assert not np.allclose(moved(board), jax.nn.relu(moved.last(x)).ravel())


def test_boards_pass_through_what_the_body_is_told():
    space = dict_space(seat=Discrete(2), seen=Box(BOARD, 0.0, 1.0))
    seen = {"seat": jnp.int32(1), "seen": jax.random.uniform(KEY, BOARD)}
    flat = Encoder(space, KEY, Flat())
    np.testing.assert_array_equal(flat(seen), np.concatenate([[0, 1], np.ravel(seen["seen"])]).astype("float32"))
    body = Body(space, (6,), KEY, init=orthogonal(1.0), activation=jnp.tanh, image=Residual(5, 1, 3))
    assert body.encoder.size == 2 + 4 * 3 * 3 and body((), seen)[0].shape == (6,)
