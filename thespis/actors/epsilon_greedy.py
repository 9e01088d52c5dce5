"""Epsilon-greedy action selection from action values."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.spaces import Discrete, MultiDiscrete, random_action


def epsilon_greedy(
    q_values: Float[Array, " n"],
    action_mask: Bool[Array, " n"] | None,
    epsilon: Float[Array, ""],
    key: Key[Array, ""],
) -> Int[Array, ""]:
    """Epsilon-greedy action: the greedy choice, or with probability ``epsilon`` a uniform legal one.

    Illegal ``q_values`` must be masked.
    """
    chance_key, random_key = jax.random.split(key)
    uniform = random_action(Discrete(q_values.shape[0]), random_key, action_mask)
    explore = jax.random.uniform(chance_key) < epsilon
    return jnp.where(explore, uniform, jnp.argmax(q_values).astype("int32"))


def epsilon_greedy_multidiscrete(
    q_table: Float[Array, "part widest"],
    space: MultiDiscrete,
    action_mask: Bool[Array, " choices"] | None,
    epsilon: Float[Array, ""],
    key: Key[Array, ""],
) -> Int[Array, " part"]:
    """Epsilon-greedy action vector: all choices greedy, or with probability ``epsilon`` all of them uniform legal ones.

    ``q_table`` has a row of values for each component; entries that are illegal or that pad a row must be far below any
    other.
    """
    chance_key, random_key = jax.random.split(key)
    explore = jax.random.uniform(chance_key) < epsilon
    return jnp.where(
        explore, random_action(space, random_key, action_mask), jnp.argmax(q_table, axis=-1).astype("int32")
    )
