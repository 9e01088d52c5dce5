"""Choices by their values: the best one, or now and then a random one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.spaces import Discrete, MultiDiscrete, random_action


def epsilon_greedy(
    values: Float[Array, " n"],
    legal: Bool[Array, " n"] | None,
    epsilon: Float[Array, ""],
    key: Key[Array, ""],
) -> Int[Array, ""]:
    """The best choice, or with chance ``epsilon`` a uniform legal one; ``values`` of illegal ones are masked."""
    chance_key, random_key = jax.random.split(key)
    uniform = random_action(Discrete(values.shape[0]), random_key, legal)
    explore = jax.random.uniform(chance_key) < epsilon
    return jnp.where(explore, uniform, jnp.argmax(values).astype("int32"))


def epsilon_greedy_vector(
    table: Float[Array, "part widest"],
    space: MultiDiscrete,
    legal: Bool[Array, " choices"] | None,
    epsilon: Float[Array, ""],
    key: Key[Array, ""],
) -> Int[Array, " part"]:
    """The best choice of every part, or with chance ``epsilon`` a uniform legal one of every part, all at once.

    ``table`` has a row of values for each part; those of choices that are illegal or not there are far below any other.
    """
    chance_key, random_key = jax.random.split(key)
    explore = jax.random.uniform(chance_key) < epsilon
    return jnp.where(explore, random_action(space, random_key, legal), jnp.argmax(table, axis=-1).astype("int32"))
