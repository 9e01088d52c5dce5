"""What a finished run says of each of its seeds: numbers that claims are made of."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.keys import key_of
from thespis.envs import registry
from thespis.envs.compiled.lasting import Lasting
from thespis.envs.host.compiled import AsHost
from thespis.evaluation.play import play
from thespis.trained import Run


@dataclasses.dataclass(frozen=True)
class Measure:
    """A number per seed of a finished run; any function will do for ``of``."""

    name: str
    of: Callable[[Run], Float[np.ndarray, "seed *rest"]]
    larger_is_better: bool = True
    world: str | None = None
    """The only world whose runs it can be taken of; ``None``: any."""


def final_return(mode: str = "greedy") -> Measure:
    """Mean return of the final evaluation, in the environment's reward; ``mode``: ``greedy`` or ``sampled``."""
    return Measure(f"final {mode} return", lambda run: _returns(run, mode).mean(axis=1))


def elsewhere(episodes: int = 50, mode: str = "greedy", **changed: Any) -> Measure:
    """Mean return of play in the run's own world with other numbers, such as ``population=6``.

    ``mode``: ``greedy`` or ``sampled``. The world should be a compiled one, and ``changed`` names fields of it that
    leave its spaces as they are.
    """

    def of(run: Run) -> Float[np.ndarray, " seed"]:
        world: Any = registry.compiled(run.config["env"])
        seeds = run.config["seeds"]
        worlds = AsHost(dataclasses.replace(world, **changed), episodes * len(seeds))
        return play(run.method, run.states, worlds, seeds, Mode(mode), stream="elsewhere").returns.mean(axis=1)

    return Measure(f"{mode} return with " + ", ".join(f"{name} = {value}" for name, value in changed.items()), of)


def average_reward(steps: int = 1_000, episodes: int = 5) -> Measure:
    """Mean reward per step of greedy play in the long run: over ``steps`` steps, whatever the world's own limit.

    The world should be a compiled one that does not terminate: see :class:`thespis.envs.compiled.lasting.Lasting`.
    """

    def of(run: Run) -> Float[np.ndarray, " seed"]:
        seeds = run.config["seeds"]
        worlds = AsHost(Lasting(registry.compiled(run.config["env"]), steps), episodes * len(seeds))
        played = play(run.method, run.states, worlds, seeds, Mode.EXPLOIT, stream="lasting")
        return (played.returns / played.lengths).mean(axis=1)

    return Measure(f"reward per step over {steps:,} greedy steps", of)


def success_rate(threshold: float, mode: str = "greedy") -> Measure:
    """Share of the final evaluation's episodes that return at least ``threshold``, in [0, 1]."""
    return Measure(
        f"share of {mode} episodes that return at least {threshold:g}",
        lambda run: (_returns(run, mode) >= threshold).mean(axis=1),
    )


def tail_return(share: float, mode: str = "greedy") -> Measure:
    """Mean of the worst ``share`` of the final evaluation's returns: the expected shortfall with its sign changed."""

    def of(run: Run) -> Float[np.ndarray, " seed"]:
        returns = np.sort(_returns(run, mode), axis=1)
        return returns[:, : max(1, round(share * returns.shape[1]))].mean(axis=1)

    return Measure(f"mean of the worst {share:.0%} of {mode} returns", of)


def variance_of_returns(mode: str = "greedy") -> Measure:
    """Variance of the final evaluation's returns."""
    return Measure(f"variance of {mode} returns", lambda run: _returns(run, mode).var(axis=1), False)


def learning_area() -> Measure:
    """Mean training return over all steps: the area under the learning curve over its length.

    Where no episode ended between two rows the last known value stands; before the first ended one, the first.
    """
    return Measure("area under the learning curve", lambda run: _carried(_column(run, "episode_return")).mean(axis=1))


def steps_to(threshold: float) -> Measure:
    """Steps until the mean training return of a row of metrics is first at least ``threshold``; twice the run's
    length where it never is, which ranks last.
    """

    def of(run: Run) -> Float[np.ndarray, " seed"]:
        step, reached = _steps(run), _column(run, "episode_return") >= threshold
        return np.where(reached.any(axis=1), step[reached.argmax(axis=1)], 2.0 * step[-1])

    return Measure(f"number of steps to a training return of {threshold:g}", of, False)


def seconds_to(threshold: float) -> Measure:
    """Seconds of training until :func:`steps_to`; seeds of one run are trained together and share its clock."""

    def of(run: Run) -> Float[np.ndarray, " seed"]:
        progress = run.directory.progress()
        steps = steps_to(threshold).of(run)
        seconds = np.interp(steps, progress["step"], progress["elapsed"])
        return np.where(steps > progress["step"][-1], 2.0 * progress["elapsed"][-1], seconds)

    return Measure(f"number of seconds to a training return of {threshold:g}", of, False)


def seconds() -> Measure:
    """Seconds of training without compilation; seeds that are trained together share them."""

    def of(run: Run) -> Float[np.ndarray, " seed"]:
        return np.full(len(run.config["seeds"]), run.directory.progress()["elapsed"][-1])

    return Measure("number of seconds of training", of, False)


def planned_share(episodes: int = 20) -> Measure:
    """Final greedy return, 0 for random actions and 1 for a planner that is given the true dynamics.

    Both play ``episodes`` episodes of the run's own world, alike for all seeds: see
    :func:`thespis.evaluation.planner.planned_returns`.
    """

    def of(run: Run) -> Float[np.ndarray, " seed"]:
        low, high = _span(run.config["env"], episodes)
        return (_returns(run, "greedy").mean(axis=1) - low) / (high - low)

    return Measure("final greedy return between random play (0) and a planner (1)", of)


def overestimation() -> Measure:
    """Mean of the critic's prediction less the discounted return that followed, over sampled final episodes."""
    return Measure("over-estimation of the critic", lambda run: _errors(run, lambda error: error.mean()), False)


def calibration_error() -> Measure:
    """Mean absolute difference of the critic's prediction and the discounted return that followed."""
    return Measure("error of the critic", lambda run: _errors(run, lambda error: np.abs(error).mean()), False)


def mean_metric(column: str, *, larger_is_better: bool = True) -> Measure:
    """Mean over training of a column of metrics.csv: a cost that is constrained, an entropy, a loss."""

    def of(run: Run) -> Float[np.ndarray, " seed"]:
        return np.nanmean(_column(run, column), axis=1)

    return Measure(f"mean {column}", of, larger_is_better)


def violation(column: str, limit: float) -> Measure:
    """How far the mean over training of a cost lies above its ``limit``; 0 where it keeps to it."""
    cost = mean_metric(column)
    return Measure(f"excess of {column} over {limit:g}", lambda run: np.maximum(cost.of(run) - limit, 0.0), False)


def parameters() -> Measure:
    """All numbers of what acts, ``[seed, parameter]``: for statements on equality. Optimisers' are left out."""

    def of(run: Run) -> Float[np.ndarray, "seed parameter"]:
        policies = jax.vmap(lambda state: run.method.policy(state, Mode.EXPLOIT))(run.states)
        leaves = jax.tree.leaves(eqx.filter(policies, eqx.is_inexact_array))
        return np.concatenate([np.asarray(leaf, np.float64).reshape(len(leaf), -1) for leaf in leaves], axis=1)

    return Measure("parameters", of)


@functools.cache
def _span(env: str, episodes: int) -> tuple[float, float]:
    """Mean returns of random play and of the planner."""
    from thespis.evaluation.planner import planned_returns, random_returns

    world, key = registry.compiled(env), key_of(0)
    return float(random_returns(world, episodes, key).mean()), float(planned_returns(world, episodes, key).mean())


def _final(run: Run) -> dict:
    if run.final is None:
        raise UserError(f"{run.path} was not finished: continue it with `thespis resume {run.path}`")
    return run.final


def _returns(run: Run, mode: str) -> Float[np.ndarray, "seed episode"]:
    return np.asarray(_final(run)[mode]["scores"], np.float64)


def _steps(run: Run) -> Float[np.ndarray, " row"]:
    return np.unique(run.metrics()["step"]).astype(np.float64)


def _column(run: Run, column: str) -> Float[np.ndarray, "seed row"]:
    """A column of metrics.csv, NaN where nothing was measured."""
    table = run.metrics()
    if column not in table:
        raise UserError(f"{run.path} has no metric {column!r}: it has {', '.join(table)}")
    return np.stack([table[column][table["seed"] == seed] for seed in run.config["seeds"]]).astype(np.float64)


def _carried(values: Float[np.ndarray, "seed row"]) -> Float[np.ndarray, "seed row"]:
    known = np.isfinite(values)
    if not known.any(axis=1).all():
        raise UserError("a seed ended no episode at all: train longer, or in an environment with shorter episodes")
    last = np.maximum.accumulate(np.where(known, np.arange(values.shape[1]), -1), axis=1)
    first = known.argmax(axis=1)[:, None]
    return np.take_along_axis(values, np.where(last < 0, first, last), axis=1)


def _errors(run: Run, summed_up: Callable[[np.ndarray], float]) -> Float[np.ndarray, " seed"]:
    found = _final(run)["calibration"]
    if found is None:
        raise UserError(f"{run.path}: {run.config['method_name']} has no critic to compare with returns")
    predicted, realised = (np.asarray(found[name], np.float64) for name in ("predicted", "realised"))
    seed = np.asarray(found["seed"])
    errors = [predicted[seed == i] - realised[seed == i] for i in range(len(run.config["seeds"]))]
    known = [error[np.isfinite(error)] for error in errors]
    if not all(map(len, known)):
        raise UserError(f"{run.path}: episodes are too short to know what followed: discount less, or play longer")
    return np.array([summed_up(error) for error in known])
