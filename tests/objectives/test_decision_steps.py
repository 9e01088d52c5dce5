"""Returns of agents that act at some steps only: against GAE and V-trace on their decision steps alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.objectives.decision_points import accumulate_between_decisions, restrict_to_decisions
from thespis.objectives.returns import gae, vtrace

TIME = 40
DISCOUNT, TRACE = 0.9, 0.7


def trajectory(seed):
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(4, TIME)).astype("float32")
    ends = rng.uniform(size=TIME)
    columns = {
        "alive": rng.uniform(size=TIME) < 0.5,
        "reward": numbers[0],
        "value": numbers[1],
        "next_value": numbers[2],
        "terminated": ends < 0.1,
        "ended": ends < 0.2,
        "log_ratio": 0.3 * numbers[3],
    }
    return {name: jnp.asarray(x) for name, x in columns.items()}


def decisions_of(t):
    """Columns over decisions: rewards summed up to the next decision of the episode, values and ends."""
    decisions = []
    for start in np.nonzero(np.asarray(t["alive"]))[0]:
        step = int(start)
        reward = t["reward"][step]
        while not t["ended"][step] and step + 1 < TIME and not t["alive"][step + 1]:
            step += 1
            reward = reward + t["reward"][step]
        decisions.append((reward, t["value"][start], t["next_value"][step], t["terminated"][step], t["ended"][step]))
    return [jnp.stack([jnp.asarray(x) for x in column]) for column in zip(*decisions, strict=True)]


@pytest.mark.parametrize("seed", range(3))
def test_waiting_steps_are_merged_into_the_previous_decision(seed):
    t = trajectory(seed)
    reward, _, next_value, terminated, ended = decisions_of(t)
    results = accumulate_between_decisions(t["alive"], t["reward"], t["next_value"], t["terminated"], t["ended"])
    for ours, theirs in zip(results, (reward, next_value, terminated, ended), strict=True):
        np.testing.assert_allclose(ours[t["alive"]], theirs, rtol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_advantages_match_those_of_decisions_only(seed):
    t = trajectory(seed)
    expected = gae(*decisions_of(t), DISCOUNT, TRACE)
    columns = [t[name] for name in ("reward", "value", "next_value", "terminated", "ended")]
    result = restrict_to_decisions(lambda *row: gae(*row, DISCOUNT, TRACE), t["alive"])(*columns)
    np.testing.assert_allclose(result[t["alive"]], expected, rtol=1e-4, atol=1e-5)
    assert not jnp.any(result[~t["alive"]])


def test_additional_columns_are_taken_at_decisions():
    t = trajectory(5)
    bounds = DISCOUNT, TRACE, 1.0, 1.0
    expected = vtrace(t["log_ratio"][t["alive"]], *decisions_of(t), *bounds)
    columns = [t[name] for name in ("reward", "value", "next_value", "terminated", "ended", "log_ratio")]
    results = restrict_to_decisions(lambda *row: vtrace(row[-1], *row[:-1], *bounds), t["alive"])(*columns)
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_allclose(ours[t["alive"]], theirs, rtol=1e-4, atol=1e-5)


def test_values_at_waiting_steps_are_ignored():
    t = trajectory(6)
    names = ("reward", "value", "next_value", "terminated", "ended")
    advantages = jax.jit(
        lambda alive, *columns: restrict_to_decisions(lambda *row: gae(*row, DISCOUNT, TRACE), alive)(*columns)
    )
    result = advantages(t["alive"], *(t[name] for name in names))
    t["value"] = jnp.where(t["alive"], t["value"], jnp.nan)
    np.testing.assert_array_equal(result, advantages(t["alive"], *(t[name] for name in names)))
