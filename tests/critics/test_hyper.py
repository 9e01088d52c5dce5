"""A net that is made from an observation, against numpy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import BOX, VECTOR

from thespis.core.errors import UserError
from thespis.core.keys import key_of
from thespis.core.records import EnvSpec
from thespis.core.spaces import Discrete
from thespis.critics.hyper import Hypernetwork

SPEC = EnvSpec("pushes", VECTOR, BOX)


def moved(critic):
    """With biases and larger weights, so that nothing is hidden by zeros."""
    leaves, tree = jax.tree.flatten(critic)
    keys = jax.random.split(key_of(7), len(leaves))
    return tree.unflatten([x + 0.3 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)])


def test_values_are_those_of_the_net_that_the_observation_makes():
    critic = moved(Hypernetwork((6, 4), 5).build(SPEC, (), key_of(0)))
    seen, actions = np.array([0.3, -0.2, 0.9], "float32"), np.asarray(jax.random.normal(key_of(1), (4, *BOX.shape)))
    through = lambda layer, x: x @ np.asarray(layer.weight, "float64") + np.asarray(layer.bias)  # noqa: E731
    x = np.asarray(critic.encoder(jnp.asarray(seen)), "float64")
    for first, *blocks in critic.steps:
        x = through(first, x)
        for block in blocks:
            x = x + through(block.layers[1], np.maximum(through(block.layers[0], np.maximum(x, 0)), 0))
    y = actions.reshape(4, -1)
    for made, after in zip(critic.layers, (lambda y: np.maximum(y, 0), lambda y: y), strict=True):
        weight = through(made.weight, x).reshape(y.shape[1], -1)
        y = after((y @ weight) * (1 + through(made.gain, x)) + through(made.bias, x))
    np.testing.assert_allclose(critic(jnp.asarray(seen), jnp.asarray(actions)), y[:, 0], rtol=2e-4)


def test_weights_that_are_made_begin_as_small_as_published():
    critic = Hypernetwork().build(SPEC, (), key_of(0))
    for made, bound in zip(critic.layers, (0.05, 0.008), strict=True):
        largest = max(float(jnp.abs(part.weight).max()) for part in (made.weight, made.bias, made.gain))
        assert 0.9 * bound < largest <= bound
        assert not any(np.any(part.bias) for part in (made.weight, made.bias, made.gain))


def test_choices_are_refused():
    with pytest.raises(UserError, match="critic=Joined"):
        Hypernetwork((4,), 3).build(EnvSpec("choices", VECTOR, Discrete(3)), (), key_of(0))
