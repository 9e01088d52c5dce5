"""Network layers, encoders and bodies, with and without memory: against numpy and step-by-step evaluation."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_envs import TREE

from thespis.core.laws.random_samples import random_value
from thespis.core.spaces import Box, Discrete, MultiDiscrete, dict_space, tuple_space
from thespis.nets.body import GRU, Body, Encoder, flatten, is_image, unroll
from thespis.nets.cnn import CNN
from thespis.nets.mlp import MLP, Linear, UniformLayer, orthogonal, uniform_fan_in

KEY, RNG = jax.random.key(0), np.random.default_rng(0)


def body(space, memory=None, hidden=(6,)):
    return Body(space, hidden, KEY, init=orthogonal(1.0), activation=jnp.tanh, memory=memory)


def test_linear_and_mlp_against_numpy():
    linear = Linear(3, 2, uniform_fan_in, KEY)
    x = np.array([0.5, -1.0, 2.0], "float32")
    np.testing.assert_allclose(linear(jnp.asarray(x)), x @ np.asarray(linear.weight), rtol=1e-5)
    assert np.abs(linear.weight).max() <= 3**-0.5 and np.all(np.asarray(linear.bias) == 0)
    mlp = MLP(3, (4, 2), orthogonal(1.0), jnp.tanh, KEY)
    expected = np.tanh(np.tanh(x @ np.asarray(mlp.layers[0].weight)) @ np.asarray(mlp.layers[1].weight))
    np.testing.assert_allclose(mlp(jnp.asarray(x)), expected, rtol=1e-5)
    assert not np.array_equal(mlp.layers[0].weight[:2, :2], mlp.layers[1].weight[:2, :2])


def test_layer_norm_against_numpy():
    mlp = MLP(3, (4, 2), orthogonal(1.0), jnp.tanh, KEY, layer_norm=True)
    mlp = eqx.tree_at(lambda m: (m.norms[0].weight, m.norms[1].bias), mlp, (jnp.arange(4.0), jnp.array([1.0, -1.0])))
    x = np.array([0.5, -1.0, 2.0])
    for layer, norm in zip(mlp.layers, mlp.norms, strict=True):
        x = x @ np.asarray(layer.weight, "float64")
        x = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
        x = np.tanh(x * np.asarray(norm.weight) + np.asarray(norm.bias))
    np.testing.assert_allclose(mlp(jnp.array([0.5, -1.0, 2.0])), x, rtol=1e-4)


def test_uniform_layers_have_the_spread_of_torch():
    """PyTorch draws weights and biases of a linear layer from ``±1/sqrt(in)``, whose variance is ``1/(3 in)``."""
    layer = Linear(25, 4_000, UniformLayer(), KEY)
    for values in (np.asarray(layer.weight), np.asarray(layer.bias)):
        assert 0.19 < np.abs(values).max() <= 0.2
        np.testing.assert_allclose(values.var(), 1 / 75, rtol=0.05)
    assert abs(np.corrcoef(layer.weight[0], layer.bias)[0, 1]) < 0.1


def test_orthogonal_weights_are_orthogonal():
    weight = np.asarray(Linear(8, 3, orthogonal(2.0), KEY).weight)
    np.testing.assert_allclose(weight.T @ weight, 4 * np.eye(3), atol=1e-5)


def test_flatten_of_each_space():
    np.testing.assert_array_equal(flatten(Discrete(3), jnp.int32(1)), [0, 1, 0])
    np.testing.assert_array_equal(flatten(MultiDiscrete((2, 3)), jnp.array([1, 0])), [0, 1, 1, 0, 0])
    assert flatten(Box((2, 2), 0, 9, "int32"), jnp.ones((2, 2), "int32")).dtype == jnp.float32


def test_is_image():
    assert is_image(Box((8, 8, 3))) and is_image(Box((8, 8), 0, 255, "uint8"))
    assert not is_image(Box((8, 8))) and not is_image(Box((8,), 0, 255, "uint8")) and not is_image(Discrete(3))


def test_encoder_concatenates_nested_observations():
    encoder = Encoder(TREE, KEY)
    o = jax.tree.map(jnp.asarray, random_value(TREE, RNG))
    features = encoder(o)
    image = encoder.image_encoders[1](o["picture"])
    pieces = [o["numbers"], image, flatten(Discrete(4), o["which"][0]), flatten(MultiDiscrete((2, 3)), o["which"][1])]
    np.testing.assert_array_equal(features, jnp.concatenate(pieces))
    assert encoder.feature_size == features.shape[0] == 3 + image.shape[0] + 4 + 5


def test_encoder_ignores_dict_order():
    space = dict_space(b=Box((1,)), a=Box((2,)))
    features = Encoder(space, KEY)({"b": jnp.array([3.0]), "a": jnp.array([1.0, 2.0])})
    assert features.tolist() == [1.0, 2.0, 3.0]
    assert Encoder(tuple_space(Box((1,)), Box((2,))), KEY)((jnp.ones(1), jnp.zeros(2))).tolist() == [1.0, 0.0, 0.0]


def test_uint8_images_are_scaled_in_the_network():
    cnn = CNN((6, 5, 1), KEY)
    image = jax.random.randint(KEY, (6, 5, 1), 0, 256).astype("uint8")
    np.testing.assert_allclose(cnn(image), cnn(image.astype("float32") / 255), rtol=1e-5)
    assert not np.allclose(cnn(image), cnn(image.astype("float32")))


@pytest.mark.parametrize("shape", [(6, 5, 1), (1, 6, 5), (6, 5)])
def test_image_layouts_give_equal_features(shape):
    image = jax.random.uniform(KEY, (6, 5))
    expected = CNN((6, 5, 1), KEY)(image[..., None])
    np.testing.assert_allclose(CNN(shape, KEY)(image.reshape(shape)), expected, rtol=1e-6)


def test_convolution_against_loops():
    cnn = CNN((5, 4, 2), KEY)
    image = np.asarray(jax.random.normal(KEY, (5, 4, 2)))
    kernel = np.asarray(cnn.kernels[0])
    expected = np.zeros((3, 2, 16))
    for i in range(3):
        for j in range(2):
            expected[i, j] = np.einsum("abc,abcf->f", image[i : i + 3, j : j + 3], kernel)
    np.testing.assert_allclose(cnn(jnp.asarray(image)), np.maximum(expected, 0).ravel(), atol=1e-4)


def test_large_images_get_the_large_network():
    cnn = CNN((84, 84, 4), KEY)
    assert [k.shape for k in cnn.kernels] == [(8, 8, 4, 32), (4, 4, 32, 64), (3, 3, 64, 64)]
    assert jax.eval_shape(cnn, jnp.zeros((84, 84, 4), "uint8")).shape == (7 * 7 * 64,)
    assert jax.eval_shape(CNN((36, 36, 1), KEY), jnp.zeros((36, 36, 1))).shape == (64,)


def test_body_sizes():
    space = Box((3,))
    assert (
        body(space).feature_size == 6
        and body(space, GRU(5)).feature_size == 5
        and body(space, hidden=()).feature_size == 3
    )
    assert body(space).init_memory(4) == () and body(space, GRU(5)).init_memory(4).shape == (4, 5)


@pytest.mark.parametrize("space", [Box((3,)), TREE], ids=["vector", "tree"])
def test_unroll_equals_stepping(space):
    time, rows = 12, 3
    network = body(space, GRU(5))
    observations = jax.tree.map(jnp.asarray, random_value(space, RNG, (time, rows)))
    first = jax.random.bernoulli(KEY, 0.3, (time, rows))
    start = jax.random.normal(KEY, (rows, 5))
    features, memories = jax.jit(unroll)(network, start, observations, first)
    assert first.any() and not first.all()
    for row in range(rows):
        memory = start[row]
        for t in range(time):
            memory = jnp.zeros(5) if first[t, row] else memory
            feature, memory = network(memory, jax.tree.map(lambda x, t=t, row=row: x[t, row], observations))
            np.testing.assert_allclose(features[t, row], feature, atol=1e-5)
            np.testing.assert_allclose(memories[t, row], memory, atol=1e-5)


def test_memory_does_not_pass_the_start_of_an_episode():
    network = body(Box((1,)), GRU(4))
    first = jnp.array([[True], [False], [True], [False]])

    def last(observations):
        return jnp.sum(unroll(network, jnp.zeros((1, 4)), observations, first)[0][3])

    gradient = np.asarray(jax.grad(last)(jnp.ones((4, 1, 1)))).ravel()
    assert gradient[:2].tolist() == [0.0, 0.0] and np.all(gradient[2:] != 0)


def test_unrolling_without_memory_is_a_map():
    network = body(Box((3,)))
    observations = jax.random.normal(KEY, (4, 2, 3))
    features, memories = unroll(network, (), observations, jnp.zeros((4, 2), bool))
    assert memories == ()
    np.testing.assert_allclose(features[2, 1], network((), observations[2, 1])[0], atol=1e-6)


def test_every_leaf_of_a_network_is_an_array():
    leaves = jax.tree.leaves(body(TREE, GRU(4)))
    assert all(eqx.is_array(leaf) for leaf in leaves)
