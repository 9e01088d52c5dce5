"""What can be had of a world whose dynamics are known: model-predictive control by the cross-entropy method.

At every step the planner draws candidate plans around a mean, plays each from the true state with the world's own
``step``, moves mean and spread to the best of them (the elites), and after a few rounds plays the first action of
the best plan found. The method is Rubinstein's (de Boer et al. 2005, "A tutorial on the cross-entropy method"), its
use for control that of Chua et al. (2018, "PETS", arXiv:1805.12114). Noise correlated over time, elites kept from one
round and one step to the next, and playing the best plan rather than the mean are from Pinneri et al. (2020, "iCEM",
arXiv:2008.06389); the noise here is a stationary autoregressive process in place of their powers of frequency.

Nothing is learnt: a planner's returns say how well a learner could do, not how.
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
from thespis.core.keys import fold, per_index
from thespis.core.spaces import Box, random_action, to_world


@dataclasses.dataclass(frozen=True)
class CEM:
    """How a planner searches.

    ``horizon``: steps a plan looks ahead; ``discount``: of a plan's rewards, in ``(0, 1]``; ``candidates``: plans
    drawn in each of ``iterations`` rounds; ``elites``: the best, to which mean and spread move, all but the share
    ``inertia``; ``spread``: standard deviation at the start of every search, in canonical actions, never less than
    ``narrowest``; ``correlation``: of the noise of neighbouring steps, in ``[0, 1)``.

    The defaults look far, for rewards that come late, and discount: what an unsteady world does after many
    steps of a fixed plan is chance, and without a discount that decides which plan looks best.
    """

    horizon: int = 100
    discount: float = 0.97
    candidates: int = 64
    elites: int = 12
    iterations: int = 5
    inertia: float = 0.1
    spread: float = 0.7
    narrowest: float = 0.02
    correlation: float = 0.95

    def __post_init__(self):
        """Refuse what cannot be searched."""
        if min(self.horizon, self.elites, self.iterations) < 1 or self.candidates < self.elites:
            raise UserError("a planner needs horizon, iterations and elites >= 1, and candidates >= elites")
        if not 0 <= self.correlation < 1:
            raise UserError(f"the correlation of a planner's noise must be in [0, 1), not {self.correlation}")
        if not 0 < self.discount <= 1:
            raise UserError(f"the discount of a plan's rewards must be in (0, 1], not {self.discount}")


class Playing(eqx.Module):
    """One episode under way; ``memory`` is what the player carries from step to step."""

    state: PyTree
    memory: PyTree
    total: Float[Array, ""]
    time: Int[Array, ""]
    ended: Bool[Array, ""]


class Plans(eqx.Module):
    """What a search hands on to the next step's: canonical actions, the best elite first."""

    mean: Float[Array, "horizon *action"]
    elites: Float[Array, "elite horizon *action"]


Player = Callable[[PyTree, Any, Any], tuple[Any, PyTree]]
"""From memory, the world's true state and a key: a canonical action, and the memory after it."""


def planned_returns(
    environment: Environment, episodes: int, key: Key[Array, ""], settings: CEM | None = None
) -> Float[np.ndarray, " episode"]:
    """Undiscounted returns of whole episodes played by the planner, under the world's default parameters.

    Rewards after a plan's end, of either kind, count nothing. In a world of chance the planner does not see
    what will be drawn: it plans with draws of its own, the same for all candidates of one round.

    Raises:
        UserError: if the action is no bounded box of floats, or the world has no time limit.
    """
    settings = settings or CEM()
    mean = jnp.zeros((settings.horizon, *_checked(environment)[0].shape))
    start = Plans(mean, jnp.zeros((settings.elites, *mean.shape)))

    def player(plans: Plans, state: PyTree, key: Key[Array, ""]) -> tuple[Array, Plans]:
        plans = _search(environment, settings, state, plans, key)
        following = Plans(_shifted(plans.mean), jax.vmap(_shifted)(plans.elites))
        return plans.elites[0, 0], following

    return _returns(environment, episodes, key, player, start)


def random_returns(environment: Environment, episodes: int, key: Key[Array, ""]) -> Float[np.ndarray, " episode"]:
    """Undiscounted returns of whole episodes of uniformly random actions, from the same starts.

    Raises:
        UserError: as :func:`planned_returns` does.
    """
    space, _ = _checked(environment)
    return _returns(environment, episodes, key, lambda memory, _, key: (random_action(space, key), memory), ())


def _checked(environment: Environment) -> tuple[Box, int]:
    spec = environment.spec
    if not isinstance(spec.action, Box) or not np.issubdtype(spec.action.dtype, np.floating):
        raise UserError(f"a planner needs one box of floats as action, and {spec.name} has {spec.action}")
    if not np.isfinite(spec.action.bounds()).all():
        raise UserError(f"a planner needs bounded actions, and those of {spec.name} are not")
    if spec.time_limit is None:
        raise UserError(f"{spec.name} has no time limit: say one in its spec, or its episodes may never end")
    return spec.action, spec.time_limit


def _returns(environment: Environment, episodes: int, key: Key[Array, ""], player: Player, memory: PyTree):
    spec, (space, limit) = environment.spec, _checked(environment)

    def going(now: Playing) -> Bool[Array, ""]:
        return ~now.ended & (now.time < limit)

    def tick(root: Key[Array, ""], now: Playing) -> Playing:
        action, memory = player(now.memory, now.state, fold(root, "act", now.time))
        state, step = environment.step(now.state, to_world(space, action), fold(root, "step", now.time))
        ended = jnp.asarray(step.terminated | step.truncated)
        return Playing(state, memory, now.total + step.reward, now.time + 1, ended)

    def episode(root: Key[Array, ""]) -> Float[Array, ""]:
        state, _ = environment.reset(spec.params, fold(root, "reset"))
        start = Playing(state, memory, jnp.zeros(()), jnp.zeros((), "int32"), jnp.zeros((), bool))
        # a loop that may stop early: some worlds' limits are far beyond the steps that a good plan takes
        return jax.lax.while_loop(going, lambda now: tick(root, now), start).total

    return np.asarray(jax.jit(jax.vmap(episode))(per_index(key, episodes)))


def _search(environment: Environment, settings: CEM, state: PyTree, plans: Plans, key: Key[Array, ""]) -> Plans:
    """The plans after all rounds. The elites of one round stand among the candidates of the next."""
    lags = np.abs(np.subtract.outer(np.arange(settings.horizon), np.arange(settings.horizon)))
    weights = jnp.asarray(settings.discount ** np.arange(settings.horizon), "float32")
    root = np.linalg.cholesky(settings.correlation**lags).astype("float32")  # of the noise's correlations in time

    def round_(carry: tuple[Plans, Array], key: Key[Array, ""]) -> tuple[tuple[Plans, Array], None]:
        plans, spread = carry
        draws = jax.random.normal(fold(key, "draw"), (settings.candidates, *plans.mean.shape))
        noise = jnp.einsum("ts,ns...->nt...", root, draws)
        drawn = jnp.clip(plans.mean + spread * noise, -1.0, 1.0)
        candidates = jnp.concatenate([plans.elites, drawn])
        scores = jax.vmap(lambda plan: _score(environment, state, plan, weights, fold(key, "step")))(candidates)
        elites = candidates[jax.lax.top_k(scores, settings.elites)[1]]
        mean = settings.inertia * plans.mean + (1 - settings.inertia) * elites.mean(0)
        spread = settings.inertia * spread + (1 - settings.inertia) * elites.std(0)
        return (Plans(mean, elites), jnp.maximum(spread, settings.narrowest)), None

    spread = jnp.full_like(plans.mean, settings.spread)
    return jax.lax.scan(round_, (plans, spread), jax.random.split(key, settings.iterations))[0][0]


def _score(
    environment: Environment,
    state: PyTree,
    plan: Float[Array, "horizon *action"],
    weights: Float[Array, " horizon"],
    key: Key[Array, ""],
) -> Float[Array, ""]:
    """The weighted sum of a plan's rewards from ``state`` until the episode ends."""
    space = environment.spec.action

    def tick(carry: tuple[PyTree, Array, Array], at: tuple[Array, Array, Array]):
        (state, total, going), (action, weight, key) = carry, at
        state, step = environment.step(state, to_world(space, action), key)
        total = total + jnp.where(going, weight * step.reward, 0.0)
        return (state, total, going & ~(step.terminated | step.truncated)), None

    start = (state, jnp.zeros(()), jnp.ones((), bool))
    return jax.lax.scan(tick, start, (plan, weights, per_index(key, len(plan))))[0][1]


def _shifted(plan: Float[Array, "horizon *action"]) -> Float[Array, "horizon *action"]:
    """The plan one step on, its last action twice."""
    return jnp.concatenate([plan[1:], plan[-1:]])
