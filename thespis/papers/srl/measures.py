"""Measures of returns with longer decision intervals than in training (action repetition or action sequences)."""

from __future__ import annotations

import functools
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from thespis.core.contracts import Mode
from thespis.envs import registry
from thespis.evaluation.baseline import RandomPolicy
from thespis.evaluation.run import Run
from thespis.evidence.measures import Measure, play_in
from thespis.papers.srl.envs import ActionRepeat

DECISION_INTERVALS = (1, 4, 8, 12, 16)
"""Steps between two observations, up to half of the maximum of Patel and Siegelmann, who take 1, 2, 4, 6 to 30."""


@runtime_checkable
class HasDecisionInterval(Protocol):
    """Protocol of a method whose policy outputs several actions per observation."""

    def with_decision_interval(self, decision_interval: int) -> Any:
        """The same method with one observation per ``decision_interval`` steps."""
        ...


def frequency_averaged_score(
    decision_intervals: tuple[int, ...] = DECISION_INTERVALS, num_episodes: int = 10
) -> Measure:
    """Greedy return averaged over decision intervals: the area under its curve by the trapezoidal rule.

    Between two observations a method with action sequences plays them, any other method repeats its action. Compiled
    environments only; of an :class:`ActionRepeat` environment the inner environment is used. This is the
    Frequency-Averaged Score of Patel and Siegelmann (2025). Differs from theirs in scale: theirs is shifted and divided
    per environment so that the best return is 1, which does not change the order within an environment.
    ``num_episodes`` episodes for each interval.
    """

    return Measure(
        f"return averaged over 1 look in {decision_intervals[0]} to {decision_intervals[-1]} steps",
        lambda run: _mean_over_intervals(
            [returns_at_interval(run, interval, num_episodes) for interval in decision_intervals], decision_intervals
        ),
    )


def random_frequency_averaged_score(
    decision_intervals: tuple[int, ...] = DECISION_INTERVALS, num_episodes: int = 10
) -> Measure:
    """The counterpart of :func:`frequency_averaged_score` for uniformly random actions, each of which is repeated."""
    return Measure(
        f"random return averaged over 1 look in {decision_intervals[0]} to {decision_intervals[-1]} steps",
        lambda run: _mean_over_intervals(
            [random_returns_at_interval(run, interval, num_episodes) for interval in decision_intervals],
            decision_intervals,
        ),
    )


def _mean_over_intervals(
    returns: list[Float[np.ndarray, " seed"]], decision_intervals: tuple[int, ...]
) -> Float[np.ndarray, " seed"]:
    """Mean over decision intervals by the trapezoidal rule."""
    return np.trapezoid(np.stack(returns), decision_intervals, axis=0) / (
        decision_intervals[-1] - decision_intervals[0]
    )


def return_at_interval(decision_interval: int, num_episodes: int = 20) -> Measure:
    """Mean greedy return with one observation per ``decision_interval`` steps."""
    return Measure(
        f"return of 1 look in {decision_interval} steps",
        lambda run: returns_at_interval(run, decision_interval, num_episodes),
    )


def loss_at_interval(decision_interval: int, num_episodes: int = 10) -> Measure:
    """Share of the return above random play with one observation per step that is lost with fewer observations."""

    def shares(run: Run) -> Float[np.ndarray, " seed"]:
        each_step, seldom = (returns_at_interval(run, interval, num_episodes) for interval in (1, decision_interval))
        return (each_step - seldom) / (each_step - random_returns_at_interval(run, 1, num_episodes).mean())

    return Measure(f"share of the return that is lost with 1 look in {decision_interval} steps", shares, False)


@functools.cache
def returns_at_interval(run: Run, decision_interval: int, num_episodes: int) -> Float[np.ndarray, " seed"]:
    """Mean greedy return of each seed with one observation per ``decision_interval`` steps."""
    env, method = _single_step_env(run), run.method
    if isinstance(method, HasDecisionInterval):
        method = method.with_decision_interval(decision_interval)
    else:
        env = ActionRepeat(env, decision_interval)
    return play_in(run, env, num_episodes, Mode.EXPLOIT, "looking", method=method).episode_returns.mean(axis=1)


@functools.cache
def random_returns_at_interval(run: Run, decision_interval: int, num_episodes: int) -> Float[np.ndarray, " seed"]:
    """Mean return of uniformly random actions, each of which is repeated for ``decision_interval`` steps."""
    env, states = ActionRepeat(_single_step_env(run), decision_interval), np.arange(len(run.config["seeds"]))
    policy = RandomPolicy(env.spec.action_space, env.spec.groups)
    result = play_in(run, env, num_episodes, Mode.SAMPLE, "looking", method=policy, states=states)
    return result.episode_returns.mean(axis=1)


def _single_step_env(run: Run) -> Any:
    """The run's environment, without action repeat."""
    env: Any = registry.make_compiled(run.config["env"])
    return env.env if isinstance(env, ActionRepeat) else env
