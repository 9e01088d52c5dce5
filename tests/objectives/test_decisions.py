"""An agent that decides at some steps only learns as one that sees nothing but its own decisions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.objectives.decisions import at_decisions, stitched
from thespis.objectives.returns import gae, vtrace

TIME = 40
DISCOUNT, TRACE = 0.9, 0.7


def trajectory(seed):
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(4, TIME)).astype("float32")
    ends = rng.uniform(size=TIME)
    found = {
        "alive": rng.uniform(size=TIME) < 0.5,
        "reward": numbers[0],
        "value": numbers[1],
        "next_value": numbers[2],
        "terminated": ends < 0.1,
        "ended": ends < 0.2,
        "log_ratio": 0.3 * numbers[3],
    }
    return {name: jnp.asarray(x) for name, x in found.items()}


def by_hand(t):
    """Its decisions as a list of dicts: rewards up to the next one in the episode, and what follows."""
    found = []
    for start in np.nonzero(np.asarray(t["alive"]))[0]:
        step = int(start)
        reward = t["reward"][step]
        while not t["ended"][step] and step + 1 < TIME and not t["alive"][step + 1]:
            step += 1
            reward = reward + t["reward"][step]
        found.append((reward, t["value"][start], t["next_value"][step], t["terminated"][step], t["ended"][step]))
    return [jnp.stack([jnp.asarray(x) for x in column]) for column in zip(*found, strict=True)]


@pytest.mark.parametrize("seed", range(3))
def test_waits_are_stitched_to_the_decision_before(seed):
    t = trajectory(seed)
    reward, _, next_value, terminated, ended = by_hand(t)
    found = stitched(t["alive"], t["reward"], t["next_value"], t["terminated"], t["ended"])
    for ours, theirs in zip(found, (reward, next_value, terminated, ended), strict=True):
        np.testing.assert_allclose(ours[t["alive"]], theirs, rtol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_advantages_are_those_of_its_decisions_alone(seed):
    t = trajectory(seed)
    wanted = gae(*by_hand(t), DISCOUNT, TRACE)
    columns = [t[name] for name in ("reward", "value", "next_value", "terminated", "ended")]
    found = at_decisions(lambda *row: gae(*row, DISCOUNT, TRACE), t["alive"])(*columns)
    np.testing.assert_allclose(found[t["alive"]], wanted, rtol=1e-4, atol=1e-5)
    assert not jnp.any(found[~t["alive"]])


def test_columns_beside_are_taken_at_decisions_too():
    t = trajectory(5)
    bounds = DISCOUNT, TRACE, 1.0, 1.0
    wanted = vtrace(t["log_ratio"][t["alive"]], *by_hand(t), *bounds)
    columns = [t[name] for name in ("reward", "value", "next_value", "terminated", "ended", "log_ratio")]
    found = at_decisions(lambda *row: vtrace(row[-1], *row[:-1], *bounds), t["alive"])(*columns)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours[t["alive"]], theirs, rtol=1e-4, atol=1e-5)


def test_what_stands_at_waits_is_not_looked_at():
    t = trajectory(6)
    names = ("reward", "value", "next_value", "terminated", "ended")
    over = jax.jit(lambda alive, *columns: at_decisions(lambda *row: gae(*row, DISCOUNT, TRACE), alive)(*columns))
    found = over(t["alive"], *(t[name] for name in names))
    t["value"] = jnp.where(t["alive"], t["value"], jnp.nan)
    np.testing.assert_array_equal(found, over(t["alive"], *(t[name] for name in names)))
