"""Exact planning in deterministic tables: optimal values, greedy actions, and returns within a horizon."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from thespis.core.records import Number

StateActionTable = Float[Array, "state action"]


def action_values(
    rewards: StateActionTable,
    values: Float[Array, " state"],
    next_state: Int[Array, "state action"],
    is_terminal: Bool[Array, " state"],
    discount: Number,
) -> StateActionTable:
    """Action values from the values of states, of which terminal ones count 0."""
    return rewards + discount * jnp.where(is_terminal, 0.0, values)[next_state]


def optimal_values(
    rewards: StateActionTable,
    next_state: Int[Array, "state action"],
    is_terminal: Bool[Array, " state"],
    discount: Number,
    num_iterations: int,
) -> Float[Array, " state"]:
    """Values of the best policy over ``num_iterations`` steps, by value iteration; 0 in terminal states.

    They are differentiable: the derivative by a reward is how often the best policy earns it.
    """

    def iterate(values: Float[Array, " state"], _: None) -> tuple[Float[Array, " state"], None]:
        return jnp.max(action_values(rewards, values, next_state, is_terminal, discount), axis=1), None

    values, _ = jax.lax.scan(iterate, jnp.zeros(rewards.shape[0]), None, num_iterations)
    return jnp.where(is_terminal, 0.0, values)


def policy_values(
    probs: StateActionTable,
    rewards: StateActionTable,
    next_state: Int[Array, "state action"],
    is_terminal: Bool[Array, " state"],
    horizon: int,
) -> Float[Array, " state"]:
    """Expected return of a policy from each state within ``horizon`` steps; 0 in terminal states."""

    def iterate(values: Float[Array, " state"], _: None) -> tuple[Float[Array, " state"], None]:
        return jnp.sum(probs * action_values(rewards, values, next_state, is_terminal, 1.0), axis=1), None

    values, _ = jax.lax.scan(iterate, jnp.zeros(rewards.shape[0]), None, horizon)
    return jnp.where(is_terminal, 0.0, values)


def reach_probabilities(
    probs: StateActionTable,
    next_state: Int[Array, "state action"],
    is_terminal: Bool[Array, " state"],
    is_target: Bool[Array, " state"],
    horizon: int,
) -> Float[Array, " state"]:
    """Probability of each state that a policy ends in a terminal target state within ``horizon`` steps."""

    def iterate(reached: Float[Array, " state"], _: None) -> tuple[Float[Array, " state"], None]:
        moved = jnp.sum(probs * reached[next_state], axis=1)
        return jnp.where(is_terminal, is_target.astype("float32"), moved), None

    return jax.lax.scan(iterate, is_target.astype("float32"), None, horizon)[0]


def greedy_probs(values: StateActionTable) -> StateActionTable:
    """Probabilities of the best actions, the first of equal ones."""
    return jax.nn.one_hot(jnp.argmax(values, axis=1), values.shape[1])
