"""An encoder as a user would write it, in a module of their own."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.spaces import Space


class SquareFeatures(eqx.Module):
    """Squares of the numbers of an observation, weighted."""

    weight: Float[Array, " feature"]

    def __init__(self, space: Space, key: Key[Array, ""]):
        self.weight = 1.0 + 0.1 * jax.random.normal(key, space.shape)

    def __call__(self, observation: PyTree) -> Float[Array, " feature"]:
        """One feature per number."""
        return self.weight * jnp.square(observation)


def square_image(space: Space, key: Key[Array, ""]) -> SquareFeatures:
    """An encoder that forgets to return a vector."""
    return eqx.tree_at(lambda network: network.weight, SquareFeatures(space, key), jnp.ones((2, 1)))
