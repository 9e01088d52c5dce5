"""Model-predictive control with known dynamics by the cross-entropy method (CEM), as an upper reference for learners.

At every step the planner samples candidate plans around a mean, simulates each from the true state with the
environment's own ``step``, moves mean and standard deviation to the best of them (the elites), and after a few
iterations plays the first action of the best plan. The method is Rubinstein's (de Boer et al. 2005, "A tutorial on the
cross-entropy method"), its use for control that of Chua et al. (2018, "PETS", arXiv:1805.12114). Noise correlated over
time, elites kept from one iteration and one step to the next, and playing the best plan rather than the mean are from
Pinneri et al. (2020, "iCEM", arXiv:2008.06389).

Differs from iCEM: the noise is a stationary autoregressive process, not coloured noise with a power-law spectrum.

Nothing is learned: a planner's returns show which returns are possible in an environment.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.contracts import Environment
from thespis.core.errors import UserError
from thespis.core.spaces import Box, random_action, unscale_action
from thespis.runtime.keys import fold, indexed_keys


@dataclasses.dataclass(frozen=True)
class CEMConfig:
    """Settings of the CEM planner.

    ``horizon``: steps of a plan; ``discount``: of a plan's rewards, in ``(0, 1]``; ``num_candidates``: plans sampled in
    each of ``num_iterations`` iterations; ``num_elites``: number of best plans to which mean and standard deviation
    move; ``momentum``: weight of the old mean and standard deviation in that move; ``initial_std``: standard deviation
    at the start of every search, in canonical actions; ``min_std``: its lower bound; ``noise_correlation``: correlation
    of the noise of neighbouring steps, in ``[0, 1)``.

    The default horizon is long, for delayed rewards, and the default discount is below 1: in an unstable environment
    the outcome of many steps of a fixed plan is mostly chance, and without a discount it would decide the ranking.
    """

    horizon: int = 100
    discount: float = 0.97
    num_candidates: int = 64
    num_elites: int = 12
    num_iterations: int = 5
    momentum: float = 0.1
    initial_std: float = 0.7
    min_std: float = 0.02
    noise_correlation: float = 0.95

    def __post_init__(self):
        """Check the settings; raises ``UserError`` for values out of range."""
        if min(self.horizon, self.num_elites, self.num_iterations) < 1 or self.num_candidates < self.num_elites:
            raise UserError("a planner needs horizon, iterations and elites >= 1, and candidates >= elites")
        if not 0 <= self.noise_correlation < 1:
            raise UserError(f"the correlation of a planner's noise must be in [0, 1), not {self.noise_correlation}")
        if not 0 < self.discount <= 1:
            raise UserError(f"the discount of a plan's rewards must be in (0, 1], not {self.discount}")


class PlannerEpisode(eqx.Module):
    """State of one unfinished episode; ``memory`` is what the policy carries from step to step."""

    state: PyTree
    memory: PyTree
    episode_return: Float[Array, ""]
    step: Int[Array, ""]
    done: Bool[Array, ""]


class SearchState(eqx.Module):
    """Mean and elites that a search passes to the search of the next step: canonical actions, the best elite first."""

    mean: Float[Array, "horizon *action"]
    elites: Float[Array, "elite horizon *action"]


StatefulPolicy = Callable[[PyTree, Any, Any], tuple[Any, PyTree]]
"""From memory, the environment's true state and a key: a canonical action and the next memory."""


def planner_returns(
    env: Environment, num_episodes: int, key: Key[Array, ""], config: CEMConfig | None = None
) -> Float[np.ndarray, " episode"]:
    """Undiscounted returns of whole episodes played by the planner, with the environment's default parameters.

    Within a plan, rewards after termination or truncation are not counted. In a stochastic environment the planner
    does not see the environment's random draws: it plans with its own, the same for all candidates of one iteration.

    Raises:
        UserError: if the action space is not a bounded box of floats, or the environment has no time limit.
    """
    config = config or CEMConfig()
    mean = jnp.zeros((config.horizon, *_check_spec(env)[0].shape))
    start = SearchState(mean, jnp.zeros((config.num_elites, *mean.shape)))

    def player(plans: SearchState, state: PyTree, key: Key[Array, ""]) -> tuple[Array, SearchState]:
        plans = _cem_search(env, config, state, plans, key)
        next_plans = SearchState(_shift_plan(plans.mean), jax.vmap(_shift_plan)(plans.elites))
        return plans.elites[0, 0], next_plans

    return _episode_returns(env, num_episodes, key, player, start)


def random_returns(env: Environment, num_episodes: int, key: Key[Array, ""]) -> Float[np.ndarray, " episode"]:
    """Undiscounted returns of whole episodes of uniformly random actions, from the same initial states.

    Raises:
        UserError: as :func:`planner_returns` does.
    """
    space, _ = _check_spec(env)
    return _episode_returns(env, num_episodes, key, lambda memory, _, key: (random_action(space, key), memory), ())


def _check_spec(env: Environment) -> tuple[Box, int]:
    spec = env.spec
    if not isinstance(spec.action_space, Box) or not np.issubdtype(spec.action_space.dtype, np.floating):
        raise UserError(f"a planner needs a box of floats as action space, and {spec.name} has {spec.action_space}")
    if not np.isfinite(spec.action_space.bounds()).all():
        raise UserError(f"a planner needs bounded actions, and those of {spec.name} are not")
    if spec.time_limit is None:
        raise UserError(f"{spec.name} has no time limit: set `time_limit` in its spec, or its episodes may never end")
    return spec.action_space, spec.time_limit


def _episode_returns(env: Environment, num_episodes: int, key: Key[Array, ""], policy: StatefulPolicy, memory: PyTree):
    spec, (space, limit) = env.spec, _check_spec(env)

    def unfinished(now: PlannerEpisode) -> Bool[Array, ""]:
        return ~now.done & (now.step < limit)

    def tick(root: Key[Array, ""], now: PlannerEpisode) -> PlannerEpisode:
        action, memory = policy(now.memory, now.state, fold(root, "act", now.step))
        state, step = env.step(now.state, unscale_action(space, action), fold(root, "step", now.step))
        done = jnp.asarray(step.terminated | step.truncated)
        return PlannerEpisode(state, memory, now.episode_return + step.reward, now.step + 1, done)

    def episode(root: Key[Array, ""]) -> Float[Array, ""]:
        state, _ = env.reset(spec.params, fold(root, "reset"))
        start = PlannerEpisode(state, memory, jnp.zeros(()), jnp.zeros((), "int32"), jnp.zeros((), bool))
        # a loop that may stop early: time limits are often far beyond the steps that a good plan takes
        return jax.lax.while_loop(unfinished, lambda now: tick(root, now), start).episode_return

    return np.asarray(jax.jit(jax.vmap(episode))(indexed_keys(key, num_episodes)))


def _cem_search(
    env: Environment, config: CEMConfig, state: PyTree, plans: SearchState, key: Key[Array, ""]
) -> SearchState:
    """Search state after all iterations; the elites of one iteration are among the candidates of the next."""
    lags = np.abs(np.subtract.outer(np.arange(config.horizon), np.arange(config.horizon)))
    weights = jnp.asarray(config.discount ** np.arange(config.horizon), "float32")
    cholesky = np.linalg.cholesky(config.noise_correlation**lags).astype(
        "float32"
    )  # of the noise's correlation matrix over time

    def iteration(carry: tuple[SearchState, Array], key: Key[Array, ""]) -> tuple[tuple[SearchState, Array], None]:
        plans, std = carry
        draws = jax.random.normal(fold(key, "draw"), (config.num_candidates, *plans.mean.shape))
        noise = jnp.einsum("ts,ns...->nt...", cholesky, draws)
        sampled = jnp.clip(plans.mean + std * noise, -1.0, 1.0)
        candidates = jnp.concatenate([plans.elites, sampled])
        scores = jax.vmap(lambda plan: _plan_return(env, state, plan, weights, fold(key, "step")))(candidates)
        elites = candidates[jax.lax.top_k(scores, config.num_elites)[1]]
        mean = config.momentum * plans.mean + (1 - config.momentum) * elites.mean(0)
        std = config.momentum * std + (1 - config.momentum) * elites.std(0)
        return (SearchState(mean, elites), jnp.maximum(std, config.min_std)), None

    std = jnp.full_like(plans.mean, config.initial_std)
    return jax.lax.scan(iteration, (plans, std), jax.random.split(key, config.num_iterations))[0][0]


def _plan_return(
    env: Environment,
    state: PyTree,
    plan: Float[Array, "horizon *action"],
    weights: Float[Array, " horizon"],
    key: Key[Array, ""],
) -> Float[Array, ""]:
    """Weighted sum of a plan's rewards from ``state`` until the episode ends."""
    space = env.spec.action_space

    def tick(carry: tuple[PyTree, Array, Array], at: tuple[Array, Array, Array]):
        (state, total, active), (action, weight, key) = carry, at
        state, step = env.step(state, unscale_action(space, action), key)
        total = total + jnp.where(active, weight * step.reward, 0.0)
        return (state, total, active & ~(step.terminated | step.truncated)), None

    start = (state, jnp.zeros(()), jnp.ones((), bool))
    return jax.lax.scan(tick, start, (plan, weights, indexed_keys(key, len(plan))))[0][1]


def _shift_plan(plan: Float[Array, "horizon *action"]) -> Float[Array, "horizon *action"]:
    """The plan shifted by one step, its last action repeated."""
    return jnp.concatenate([plan[1:], plan[-1:]])
