"""Hypernetwork critic: values and initial weights, against numpy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_envs import BOX, VECTOR

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.core.spaces import Discrete
from thespis.critics.hypernetwork import HypernetworkCritic
from thespis.runtime.keys import seed_key

SPEC = EnvSpec("pushes", VECTOR, BOX)


def random_weights(critic):
    """The critic with random offsets on all weights and biases, so that no term is zero."""
    leaves, tree = jax.tree.flatten(critic)
    keys = jax.random.split(seed_key(7), len(leaves))
    return tree.unflatten([x + 0.3 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)])


@pytest.mark.long
def test_values_match_the_generated_network():
    critic = random_weights(HypernetworkCritic((6, 4), 5).build(SPEC, (), seed_key(0)))
    obs, actions = np.array([0.3, -0.2, 0.9], "float32"), np.asarray(jax.random.normal(seed_key(1), (4, *BOX.shape)))
    affine = lambda layer, x: x @ np.asarray(layer.weight, "float64") + np.asarray(layer.bias)  # noqa: E731
    x = np.asarray(critic.encoder(jnp.asarray(obs)), "float64")
    for first, *blocks in critic.blocks:
        x = affine(first, x)
        for block in blocks:
            x = x + affine(block.layers[1], np.maximum(affine(block.layers[0], np.maximum(x, 0)), 0))
    y = actions.reshape(4, -1)
    for hyper_layer, activation in zip(critic.hyper_layers, (lambda y: np.maximum(y, 0), lambda y: y), strict=True):
        weight = affine(hyper_layer.weight, x).reshape(y.shape[1], -1)
        y = activation((y @ weight) * (1 + affine(hyper_layer.gain, x)) + affine(hyper_layer.bias, x))
    np.testing.assert_allclose(critic(jnp.asarray(obs), jnp.asarray(actions)), y[:, 0], rtol=2e-4)


@pytest.mark.long
@pytest.mark.parametrize("scale", [1.0, 8.0])
def test_initial_weights_have_the_published_bounds_times_their_scale(scale):
    critic = HypernetworkCritic(init_scale=scale).build(SPEC, (), seed_key(0))
    for hyper_layer, published in zip(critic.hyper_layers, (0.05, 0.008), strict=True):
        bound = scale * published
        largest = max(
            float(jnp.abs(part.weight).max()) for part in (hyper_layer.weight, hyper_layer.bias, hyper_layer.gain)
        )
        assert 0.9 * bound < largest <= bound * (1 + 1e-6)
        assert not any(np.any(part.bias) for part in (hyper_layer.weight, hyper_layer.bias, hyper_layer.gain))


def test_discrete_actions_are_rejected():
    with pytest.raises(UserError, match="critic=ConcatCritic"):
        HypernetworkCritic((4,), 3).build(EnvSpec("choices", VECTOR, Discrete(3)), (), seed_key(0))
