"""Noisy layers: their noise and outputs against the formulas in numpy and scipy."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from thespis.nets.mlp import MLP, Linear, uniform_fan_in
from thespis.nets.noisy import DrawnLinear, NoisyLinear, NoisyNetwork, draw_noise, has_noise, scale_noise

KEY = jax.random.key(0)
MLP_NETWORK = MLP(3, (5, 4), uniform_fan_in, jnp.tanh, KEY)


def draws(network, count):
    return jax.vmap(lambda key: draw_noise(network, key))(jax.random.split(KEY, count))


def test_outputs_are_those_of_the_noisy_weight_matrix():
    layer = NoisyNetwork(0.5).add_noise(Linear(3, 4, uniform_fan_in, KEY))
    std = jax.tree.map(lambda x: jax.random.normal(jax.random.key(1), x.shape), layer.std)
    layer = eqx.tree_at(lambda x: (x.std, x.mean.bias), layer, (std, jnp.arange(4.0)))
    drawn = draw_noise(layer, jax.random.key(2))
    assert isinstance(drawn, DrawnLinear)
    weight, bias, sigma, sigma_bias, inputs, outputs = (
        np.asarray(x, "float64")
        for x in (layer.weight, layer.bias, std.weight, std.bias, drawn.in_noise, drawn.out_noise)
    )
    x = np.array([0.5, -1.0, 2.0])
    expected = x @ (weight + sigma * np.outer(inputs, outputs)) + bias + sigma_bias * outputs
    np.testing.assert_allclose(drawn(jnp.asarray(x, "float32")), expected, rtol=1e-5)
    np.testing.assert_allclose(layer(jnp.asarray(x, "float32")), x @ weight + bias, rtol=1e-5)


def test_noise_is_the_signed_root_of_normal_numbers():
    """Kolmogorov-Smirnov test of the squares with their signs, at a level at which one in ten thousand fails."""
    drawn = draws(NoisyNetwork().add_noise(Linear(3, 2, uniform_fan_in, KEY)), 4_000)
    for noise in (drawn.in_noise, drawn.out_noise):
        values = np.asarray(noise, "float64").ravel()
        assert stats.kstest(np.sign(values) * values**2, "norm").pvalue > 1e-4
    values = np.concatenate([np.asarray(drawn.in_noise), np.asarray(drawn.out_noise)], axis=1)
    assert np.abs(np.corrcoef(values.T) - np.eye(5)).max() < 0.06
    assert np.abs(np.corrcoef((values**2).T) - np.eye(5)).max() < 0.06
    weights = values[:, 0] * values[:, 3]
    assert weights.mean() == pytest.approx(0.0, abs=0.05) and weights.var() == pytest.approx(2 / np.pi, rel=0.1)
    np.testing.assert_allclose(scale_noise(jnp.asarray([-4.0, 0.0, 9.0])), [-2.0, 0.0, 3.0])


def test_layers_and_members_have_noise_of_their_own():
    network = NoisyNetwork().add_noise(MLP_NETWORK)
    drawn = draws(network, 2_000)
    first, second = (np.asarray(layer.in_noise) for layer in drawn.layers)
    assert np.abs(np.corrcoef(first[:, :3].T, second[:, :3].T)[:3, 3:]).max() < 0.08
    ensemble = jax.vmap(lambda key: NoisyNetwork().add_noise(MLP(3, (5,), uniform_fan_in, jnp.tanh, key)))(
        jax.random.split(KEY, 2)
    )
    noise = draw_noise(ensemble, KEY).layers[0]
    assert noise.in_noise.shape == (2, 3) and noise.out_noise.shape == (2, 5)
    assert not np.array_equal(noise.in_noise[0], noise.in_noise[1])


def test_the_mean_network_and_a_network_without_deviation_are_the_plain_one():
    x = jnp.asarray([0.3, -1.0, 0.7])
    expected = np.asarray(MLP_NETWORK(x))
    np.testing.assert_array_equal(NoisyNetwork(0.5).add_noise(MLP_NETWORK)(x), expected)
    silent = draw_noise(NoisyNetwork(0.0).add_noise(MLP_NETWORK), KEY)
    np.testing.assert_array_equal(silent(x), expected)
    assert not np.array_equal(draw_noise(NoisyNetwork(0.5).add_noise(MLP_NETWORK), KEY)(x), expected)


def test_initial_deviations_shrink_with_the_inputs_of_a_layer():
    layers = NoisyNetwork(0.5).add_noise(MLP_NETWORK).layers
    for layer, inputs in zip(layers, (3, 5), strict=True):
        assert isinstance(layer, NoisyLinear)
        np.testing.assert_allclose(layer.std.weight, 0.5 / np.sqrt(inputs), rtol=1e-6)
        np.testing.assert_allclose(layer.std.bias, 0.5 / np.sqrt(inputs), rtol=1e-6)


def test_gradients_of_deviations_are_the_noise_times_those_of_means():
    layer, x = NoisyNetwork().add_noise(Linear(3, 4, uniform_fan_in, KEY)), jnp.asarray([0.5, -1.0, 2.0])
    gradient = jax.grad(lambda layer: jnp.sum(jnp.arange(1.0, 5.0) * draw_noise(layer, KEY)(x)))(layer)
    drawn = draw_noise(layer, KEY)
    noise = np.outer(drawn.in_noise, drawn.out_noise)
    np.testing.assert_allclose(gradient.std.weight, np.asarray(gradient.mean.weight) * noise, rtol=1e-5)
    np.testing.assert_allclose(gradient.std.bias, np.arange(1, 5) * np.asarray(drawn.out_noise), rtol=1e-5)
    assert np.abs(np.asarray(gradient.std.weight)).min() > 0


def test_networks_without_noisy_layers_stay_as_they_are():
    assert draw_noise(MLP_NETWORK, KEY) is MLP_NETWORK and not has_noise(MLP_NETWORK)
    assert has_noise(NoisyNetwork().add_noise(MLP_NETWORK))
