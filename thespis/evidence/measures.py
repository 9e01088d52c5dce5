"""Measures: numbers per seed of a finished run, on which claims are based."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.envs import registry
from thespis.envs.compiled.time_limit import TimeLimit
from thespis.envs.host.wrapper import HostWrapper
from thespis.envs.registry import make_compiled
from thespis.evaluation.exploitability import evaluate_method
from thespis.evaluation.over_optimization import NUM_PARTS
from thespis.evaluation.rollout import RolloutResult, play_episodes
from thespis.evaluation.run import Run
from thespis.evaluation.vs_random import evaluate_vs_random
from thespis.runtime.keys import seed_key


@dataclasses.dataclass(frozen=True)
class Measure:
    """A named number per seed of a finished run; ``compute`` can be any function."""

    name: str
    compute: Callable[[Run], Float[np.ndarray, "seed *rest"]]
    larger_is_better: bool = True
    env: str | None = None
    """The only environment for whose runs the measure is defined; ``None``: any."""
    bounds: tuple[float, float] | None = None
    """Lowest and highest possible value, where known: intervals stay within."""


def constant(
    name: str, value: float, larger_is_better: bool = True, bounds: tuple[float, float] | None = None
) -> Measure:
    """The same number for every seed, such as what random answers are worth."""
    return Measure(name, lambda run: np.full(len(run.config["seeds"]), value), larger_is_better, bounds=bounds)


def final_return(mode: str = "greedy") -> Measure:
    """Mean return of the final evaluation, in the environment's reward; ``mode``: ``greedy`` or ``sampled``."""
    return Measure(f"final {mode} return", lambda run: _final_returns(run, mode).mean(axis=1))


def untrained_return() -> Measure:
    """Mean return of sampled play by a language model before training, in the episodes of the final evaluation."""

    def returns(run: Run) -> Float[np.ndarray, " seed"]:
        if not _require_final(run).get("untrained"):
            raise UserError(f"{run.path} has no result from before training: only runs with text actions have one")
        return _final_returns(run, "untrained").mean(axis=1)

    return Measure("sampled return before training", returns)


def play_in(
    run: Any,
    env: Any,
    num_episodes: int,
    mode: Mode,
    stream: str,
    *,
    method: Any = None,
    states: Any = None,
    num_kept: int = 0,
) -> RolloutResult:
    """Episodes of every seed of a finished run in a compiled environment, whatever its own is.

    ``run``: a :class:`~thespis.evaluation.run.Run`, or anything with its method, states and configuration. ``method``
    and ``states`` are the run's own by default; ``stream`` names the random numbers.
    """
    method, states = run.method if method is None else method, run.states if states is None else states
    seeds = run.config["seeds"]
    envs = HostWrapper(env, num_episodes * len(seeds))
    return play_episodes(method, states, envs, seeds, mode, num_kept=num_kept, stream=stream)


def once_per_run(report: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Decorator of a function of a finished run: computed once, as several measures of a trial read its result."""
    return functools.lru_cache(maxsize=64)(report)


def untrained_states(run: Run) -> PyTree:
    """States of the run's method before training, the same for all seeds: ``[seed, ...]``."""
    spec = make_compiled(run.config["env"]).spec
    state = eqx.filter_jit(lambda key: run.method.init(spec, key))(seed_key(0))
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (len(run.config["seeds"]), *x.shape)), state)


def modified_env_return(num_episodes: int = 50, mode: str = "greedy", **overrides: Any) -> Measure:
    """Mean return in the run's environment with changed fields, such as ``population=6``.

    ``mode``: ``greedy`` or ``sampled``. The environment must be compiled, and ``overrides`` are fields of it that do
    not change its spaces.
    """

    def mean_returns(run: Run) -> Float[np.ndarray, " seed"]:
        env: Any = registry.make_compiled(run.config["env"])
        changed = dataclasses.replace(env, **overrides)
        return play_in(run, changed, num_episodes, Mode(mode), "elsewhere").episode_returns.mean(axis=1)

    return Measure(
        f"{mode} return with " + ", ".join(f"{name} = {value}" for name, value in overrides.items()), mean_returns
    )


def average_reward(num_steps: int = 1_000, num_episodes: int = 5) -> Measure:
    """Mean reward per step of greedy play over ``num_steps`` steps, whatever the environment's own time limit.

    The environment must be compiled and must not terminate: see :class:`thespis.envs.compiled.time_limit.TimeLimit`.
    """

    def mean_rewards(run: Run) -> Float[np.ndarray, " seed"]:
        env = TimeLimit(registry.make_compiled(run.config["env"]), num_steps)
        result = play_in(run, env, num_episodes, Mode.EXPLOIT, "lasting")
        return (result.episode_returns / result.episode_lengths).mean(axis=1)

    return Measure(f"reward per step over {num_steps:,} greedy steps", mean_rewards)


def success_rate(threshold: float, mode: str = "greedy") -> Measure:
    """Share of the final evaluation's episodes that return at least ``threshold``, in [0, 1]."""
    return Measure(
        f"share of {mode} episodes that return at least {threshold:g}",
        lambda run: (_final_returns(run, mode) >= threshold).mean(axis=1),
        bounds=(0.0, 1.0),
    )


def cvar_return(fraction: float, mode: str = "greedy") -> Measure:
    """Conditional value at risk: mean of the worst ``fraction`` of the final evaluation's returns.

    ``mode``: ``greedy``, ``sampled`` or ``random`` (uniformly random actions).
    """

    def worst_means(run: Run) -> Float[np.ndarray, " seed"]:
        returns = np.sort(_final_returns(run, mode), axis=1)
        return returns[:, : max(1, round(fraction * returns.shape[1]))].mean(axis=1)

    return Measure(f"mean of the worst {fraction:.0%} of {mode} returns", worst_means)


def return_variance(mode: str = "greedy") -> Measure:
    """Variance of the final evaluation's returns."""
    return Measure(f"variance of {mode} returns", lambda run: _final_returns(run, mode).var(axis=1), False)


def learning_curve_auc() -> Measure:
    """Mean training return over all steps: the area under the learning curve divided by its length.

    Rows of metrics without a finished episode take the last value; rows before the first finished episode the first.
    """
    return Measure(
        "area under the learning curve", lambda run: _forward_fill(_metric_column(run, "episode_return")).mean(axis=1)
    )


def steps_to_threshold(threshold: float) -> Measure:
    """Steps until the mean training return of a row of metrics first reaches ``threshold``.

    Twice the run's length if it never does, which ranks last.
    """

    def first_steps(run: Run) -> Float[np.ndarray, " seed"]:
        step, reached = _metric_steps(run), _metric_column(run, "episode_return") >= threshold
        return np.where(reached.any(axis=1), step[reached.argmax(axis=1)], 2.0 * step[-1])

    return Measure(f"number of steps to a training return of {threshold:g}", first_steps, False)


def seconds_to_threshold(threshold: float) -> Measure:
    """Seconds of training until :func:`steps_to_threshold`; seeds of one run train together and share its clock."""

    def first_seconds(run: Run) -> Float[np.ndarray, " seed"]:
        progress = run.directory.progress()
        steps = steps_to_threshold(threshold).compute(run)
        seconds = np.interp(steps, progress["step"], progress["elapsed"])
        return np.where(steps > progress["step"][-1], 2.0 * progress["elapsed"][-1], seconds)

    return Measure(f"number of seconds to a training return of {threshold:g}", first_seconds, False)


def training_seconds() -> Measure:
    """Seconds of training without compilation; seeds that train together have the same value."""

    def total_seconds(run: Run) -> Float[np.ndarray, " seed"]:
        return np.full(len(run.config["seeds"]), run.directory.progress()["elapsed"][-1])

    return Measure("number of seconds of training", total_seconds, False)


def planner_normalized_return(num_episodes: int = 20) -> Measure:
    """Final greedy return, normalized to 0 for random actions and 1 for a planner with the true dynamics.

    Both play ``num_episodes`` episodes of the run's own environment, the same for all seeds: see
    :func:`thespis.evaluation.cem_planner.planner_returns`.
    """

    def normalized_returns(run: Run) -> Float[np.ndarray, " seed"]:
        low, high = _random_and_planner_returns(run.config["env"], num_episodes)
        return (_final_returns(run, "greedy").mean(axis=1) - low) / (high - low)

    return Measure("final greedy return between random play (0) and a planner (1)", normalized_returns)


def overestimation() -> Measure:
    """Mean of the critic's prediction minus the realised discounted return, over sampled final episodes."""
    return Measure("over-estimation of the critic", lambda run: _value_errors(run, lambda error: error.mean()), False)


def relative_overestimation() -> Measure:
    """Over-estimation as a share of the range of realised returns, from the lowest to the highest of a run's episodes.

    Seeds that train together share this range.
    """

    def shares(run: Run) -> Float[np.ndarray, " seed"]:
        realised = np.asarray(_require_calibration(run)["realised"], np.float64)
        realised = realised[np.isfinite(realised)]
        return overestimation().compute(run) / max(float(np.ptp(realised)), 1e-12)

    return Measure("over-estimation of the critic as a share of the range of returns", shares, False)


def calibration_error() -> Measure:
    """Mean absolute difference of the critic's prediction and the realised discounted return."""
    return Measure("error of the critic", lambda run: _value_errors(run, lambda error: np.abs(error).mean()), False)


def mean_metric(column: str, *, larger_is_better: bool = True) -> Measure:
    """Mean over training of a column of metrics.csv, such as a constrained cost, an entropy or a loss."""

    def column_means(run: Run) -> Float[np.ndarray, " seed"]:
        return np.nanmean(_metric_column(run, column), axis=1)

    return Measure(f"mean {column}", column_means, larger_is_better)


def fall_from_peak(column: str = "episode_return", num_parts: int = NUM_PARTS) -> Measure:
    """Fall of a column of metrics.csv, by default the training return, from its best part of training to the last.

    Means over ``num_parts`` equally long parts; 0 if the last one is the best. What grows until the end and falls in
    truth, such as a return under a learned reward, is over-optimized (Gao et al. 2023).
    """

    def falls(run: Run) -> Float[np.ndarray, " seed"]:
        parts = np.array_split(_forward_fill(_metric_column(run, column)), num_parts, axis=1)
        means = np.stack([part.mean(axis=1) for part in parts], axis=1)
        return means.max(axis=1) - means[:, -1]

    return Measure(f"fall of {column} from its best part of training", falls, False)


def constraint_violation(column: str, limit: float) -> Measure:
    """Excess of the mean over training of a cost over its ``limit``; 0 if the constraint holds."""
    cost = mean_metric(column)
    return Measure(f"excess of {column} over {limit:g}", lambda run: np.maximum(cost.compute(run) - limit, 0.0), False)


def policy_parameters() -> Measure:
    """All parameters of the policy, ``[seed, parameter]``, without those of optimisers; for claims of equality."""

    def parameters(run: Run) -> Float[np.ndarray, "seed parameter"]:
        policies = jax.vmap(lambda state: run.method.policy(state, Mode.EXPLOIT))(run.states)
        leaves = jax.tree.leaves(eqx.filter(policies, eqx.is_inexact_array))
        return np.concatenate([np.asarray(leaf, np.float64).reshape(len(leaf), -1) for leaf in leaves], axis=1)

    return Measure("parameters", parameters)


@functools.cache
def _random_and_planner_returns(env: str, num_episodes: int) -> tuple[float, float]:
    """Mean returns of random actions and of the planner."""
    from thespis.evaluation.cem_planner import planner_returns, random_returns

    compiled_env, key = registry.make_compiled(env), seed_key(0)
    return float(random_returns(compiled_env, num_episodes, key).mean()), float(
        planner_returns(compiled_env, num_episodes, key).mean()
    )


def _require_final(run: Run) -> dict:
    if run.final_scores is None:
        raise UserError(f"{run.path} was not finished: continue it with `thespis resume {run.path}`")
    return run.final_scores


def _final_returns(run: Run, mode: str) -> Float[np.ndarray, "seed episode"]:
    return np.asarray(_require_final(run)[mode]["scores"], np.float64)


def _metric_steps(run: Run) -> Float[np.ndarray, " row"]:
    return np.unique(run.metrics()["step"]).astype(np.float64)


def _metric_column(run: Run, column: str) -> Float[np.ndarray, "seed row"]:
    """A column of metrics.csv, NaN where it was not measured."""
    table = run.metrics()
    if column not in table:
        raise UserError(f"{run.path} has no metric {column!r}: it has {', '.join(table)}")
    return np.stack([table[column][table["seed"] == seed] for seed in run.config["seeds"]]).astype(np.float64)


def _forward_fill(values: Float[np.ndarray, "seed row"]) -> Float[np.ndarray, "seed row"]:
    finite = np.isfinite(values)
    if not finite.any(axis=1).all():
        raise UserError("a seed finished no episode: train longer, or on an environment with shorter episodes")
    last = np.maximum.accumulate(np.where(finite, np.arange(values.shape[1]), -1), axis=1)
    first = finite.argmax(axis=1)[:, None]
    return np.take_along_axis(values, np.where(last < 0, first, last), axis=1)


def _require_calibration(run: Run) -> dict[str, Any]:
    pairs = _require_final(run)["calibration"]
    if pairs is None:
        raise UserError(f"{run.path}: {run.config['method_name']} has no critic to compare with returns")
    return pairs


def _value_errors(run: Run, reduce: Callable[[np.ndarray], float]) -> Float[np.ndarray, " seed"]:
    pairs = _require_calibration(run)
    predicted, realised = (np.asarray(pairs[name], np.float64) for name in ("predicted", "realised"))
    seed = np.asarray(pairs["seed"])
    errors = [predicted[seed == i] - realised[seed == i] for i in range(len(run.config["seeds"]))]
    finite_errors = [error[np.isfinite(error)] for error in errors]
    if not all(map(len, finite_errors)):
        raise UserError(
            f"{run.path}: episodes are too short for known returns: lower the discount, or use longer episodes"
        )
    return np.array([reduce(error) for error in finite_errors])


def exploitability(env: str | None = None) -> Measure:
    """Exact exploitability of the sampled policy in ``env`` (``None``: any game); the mean over players.

    It is 0 in equilibrium.
    """

    def exploitabilities(run: Run) -> Float[np.ndarray, " seed"]:
        game = make_compiled(run.config["env"]).spec.game
        if game is None:
            raise UserError(f"{run.config['env']} is not a game: exploitability is not defined")
        return np.array([result.exploitability for result in evaluate_method(run.method, run.states, game)])

    name = "exploitability" if env is None else f"exploitability in {env}"
    return Measure(name, exploitabilities, larger_is_better=False, env=env)


def win_rate_vs_random(env: str) -> Measure:
    """Exact share of games that greedy play wins in ``env`` against uniformly random play; the mean over seats."""

    def win_rates(run: Run) -> Float[np.ndarray, " seed"]:
        game_env = make_compiled(env)
        seats = range(game_env.spec.groups[0].num_agents)
        states = [jax.tree.map(lambda x, i=i: x[i], run.states) for i in range(len(run.config["seeds"]))]
        return np.array(
            [np.mean([evaluate_vs_random(run.method, state, game_env, seat).win for seat in seats]) for state in states]
        )

    return Measure(f"share of games won in {env}", win_rates, env=env)
