"""Exact returns of what has been learned in the path grid, without play."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from thespis.core.contracts import Mode
from thespis.envs.registry import make_compiled
from thespis.evidence.measures import Measure, mean_metric
from thespis.papers.coach.envs import START
from thespis.papers.coach.trainers import HORIZON, policy_state_values
from thespis.papers.regret_preference_model.planning import optimal_values, reach_probabilities


def _anchors(run: Any) -> tuple[jax.Array, jax.Array]:
    """Discounted returns from the start: of random actions, and of the best policy."""
    grid: Any = make_compiled(run.config["env"])
    tables, discount = grid.tables, run.method.discount
    uniform = jnp.full_like(tables.rewards, 1.0 / tables.rewards.shape[1])
    best = optimal_values(tables.rewards, tables.next_state, tables.is_terminal, discount, HORIZON)
    return policy_state_values(uniform, tables, discount)[START], best[START]


def normalized_return(mode: Mode = Mode.SAMPLE) -> Measure:
    """Expected discounted return of what is learned, 0 for random actions and 1 for the best policy: exact."""

    def returns(run: Any) -> Float[np.ndarray, " seed"]:
        grid: Any = make_compiled(run.config["env"])
        low, high = _anchors(run)

        def learned(state: Any) -> jax.Array:
            probs = run.method.policy(state, mode).probs
            return policy_state_values(probs, grid.tables, run.method.discount)[START]

        return np.asarray((jax.vmap(learned)(run.states) - low) / (high - low))

    name = "final return" if mode is Mode.SAMPLE else "final return of the likeliest actions"
    return Measure(f"{name} between random actions (0) and the best policy (1)", returns)


def acting_return() -> Measure:
    """Expected discounted return of how the learner acts, as a mean over training: 0 for random actions, 1 at best.

    It is what the trainer sees: with the random actions of those who explore.
    """
    returns = mean_metric("acting_return")

    def shares(run: Any) -> Float[np.ndarray, " seed"]:
        low, high = _anchors(run)
        return np.asarray((returns.compute(run) - low) / (high - low))

    return Measure("return while it learns between random actions (0) and the best policy (1)", shares)


def missed_goals() -> Measure:
    """Probability that an episode of 100 steps misses the goal: exact."""

    def shares(run: Any) -> Float[np.ndarray, " seed"]:
        grid: Any = make_compiled(run.config["env"])
        tables = grid.tables
        dynamics = tables.next_state, tables.is_terminal, tables.is_terminal, grid.time_limit

        def missed(state: Any) -> jax.Array:
            reached = reach_probabilities(run.method.policy(state, Mode.SAMPLE).probs, *dynamics)[START]
            return jnp.clip(1.0 - reached, 0.0, 1.0)

        return np.asarray(jax.vmap(missed)(run.states))

    return Measure("share of episodes that miss the goal", shares, False, bounds=(0.0, 1.0))
