"""Measures of small cooperative games: exact returns of learned joint policies."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from thespis.core.contracts import HasActionProbs, Mode
from thespis.core.errors import UserError
from thespis.core.records import View
from thespis.envs.registry import make_compiled
from thespis.evaluation.run import Run
from thespis.evidence.measures import Measure
from thespis.papers.decentralized_policy_optimization.envs import StochasticGame


def optimal_return_ratio() -> Measure:
    """Exact expected return of the learned stochastic policies, divided by that of the optimal joint policy."""
    return Measure("exact joint return of sampled policies over the best", _return_ratios)


def _return_ratios(run: Run) -> Float[np.ndarray, " seed"]:
    env, method = make_compiled(run.config["env"]), run.method
    if not isinstance(env, StochasticGame) or not isinstance(method, HasActionProbs):
        raise UserError(
            f"{run.path} was not trained in a stochastic game, or its method does not provide action probabilities"
        )
    observations = jnp.broadcast_to(jnp.eye(env.num_states)[:, None], (env.num_states, env.num_agents, env.num_states))
    view = View({"agent": observations}, alive={"agent": jnp.ones(observations.shape[:2], bool)})

    def per_seed(state):
        policy = method.policy(state, Mode.SAMPLE)
        probabilities = method.action_probs(policy, method.init_memory(policy, env.num_states), view)["agent"]
        return env.expected_return(jnp.swapaxes(probabilities, 0, 1)) / env.optimal_return()

    return np.asarray(jax.vmap(per_seed)(run.states), np.float64)


def largest_fall() -> Measure:
    """Largest fall of the mean training return below its maximum so far: 0 for a return that only rises.

    Returns of rows of metrics are means of sampled episodes, so that their noise counts, in all methods alike.
    """
    return Measure("largest fall of the training return below its best so far", _largest_falls, False)


def _largest_falls(run: Run) -> Float[np.ndarray, " seed"]:
    table = run.metrics()
    returns = np.asarray(table["episode_return"], np.float64)
    return np.array([fall_below_maximum(returns[table["seed"] == seed]) for seed in run.config["seeds"]])


def fall_below_maximum(returns: Float[np.ndarray, " row"]) -> float:
    """Largest difference between the maximum so far and a later value; entries that are not finite are left out."""
    finite = returns[np.isfinite(returns)]
    return float(np.max(np.maximum.accumulate(finite) - finite))
