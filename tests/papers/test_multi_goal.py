"""The four goals against a second description of them, in plain Python."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.conformance import check_environment
from thespis.core.feeds import Replay
from thespis.core.records import Critique, Report
from thespis.envs.compiled.multi_goal import GOALS, MultiGoal, Point, squared_distances
from thespis.envs.registry import compiled, resolve
from thespis.evidence.goals import WORLD, goal_shares, goals_visited, least_visited
from thespis.trained import Run


class Walker:
    """Walks in the direction that its state holds for the row: an angle in quarter turns, or nowhere."""

    name, citations, details, feed = "walker", (), (), Replay()

    def init(self, spec, key):
        return jnp.array([[0, 0, 1, 2], [0, jnp.nan, jnp.nan, 3], [0, 1, 2, 3]], "float32")

    def policy(self, state, mode):
        return state

    def begin(self, policy, n):
        return ()

    def act(self, policy, memory, view, key):
        angle = jnp.resize(policy, view.observation.shape[0]) * jnp.pi / 2
        there = jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)
        return jnp.where(jnp.isnan(there), 0.0, there), memory, ()

    def judge(self, state, episode):
        return Critique()

    def update(self, state, batch, key):
        return state, Report({})


class Walks(Run):
    """A run of three walkers."""

    def __init__(self):
        self.config: Any = {"env": WORLD, "seeds": [0, 1, 2]}
        self.method: Any = Walker()

    @property
    def states(self):
        return self.method.init(MultiGoal().spec, jax.random.key(0))


def told(place, action, time, world):
    """The next place, reward, whether a goal is reached, whether time is up."""
    action = [min(max(a, -1.0), 1.0) for a in action]
    place = [min(max(x + a, -7.0), 7.0) for x, a in zip(place, action, strict=True)]
    near = min((place[0] - gx) ** 2 + (place[1] - gy) ** 2 for gx, gy in [(5, 0), (-5, 0), (0, 5), (0, -5)])
    reward = -world.effort * (action[0] ** 2 + action[1] ** 2) - world.distance * near
    return place, reward + (world.goal_reward if near**0.5 < 1 else 0.0), near**0.5 < 1, time + 1 == world.limit


def test_the_contract():
    check_environment(MultiGoal())
    check_environment(MultiGoal(limit=5, spread=3.0), ticks=12)
    assert resolve(WORLD).kind == "compiled" and compiled(WORLD) == MultiGoal()


@pytest.mark.parametrize("world", [MultiGoal(), MultiGoal(goal_reward=1.0, effort=1.0, distance=0.1)])
def test_every_step_is_as_told(world):
    rng = np.random.default_rng(0)
    places = rng.uniform(-7, 7, (500, 2)).astype("float32")
    actions = rng.uniform(-1.5, 1.5, (500, 2)).astype("float32")
    times = rng.choice([0, world.limit - 1], 500).astype("int32")
    _, step = jax.vmap(lambda p, a, t: world.step(Point(p, t), a, jax.random.key(0)))(places, actions, times)
    for i, (place, action, time) in enumerate(zip(places, actions, times, strict=True)):
        place, reward, there, late = told(place, action, time, world)
        np.testing.assert_allclose(step.observation[i], place, rtol=1e-6, atol=1e-6)
        assert step.reward[i] == pytest.approx(reward, rel=1e-4, abs=1e-4)
        assert bool(step.terminated[i]) == there and bool(step.truncated[i]) == (late and not there)
    assert 5 < int(step.terminated.sum()) < 100 and int(step.truncated.sum()) > 100


def test_no_goal_is_better_than_another():
    world, turn = MultiGoal(), jnp.array([[0.0, -1.0], [1.0, 0.0]])
    place, action = jnp.array([3.7, -0.4]), jnp.array([0.6, -0.3])
    paid = []
    for _ in GOALS:
        _, step = world.step(Point(place, jnp.int32(0)), action, jax.random.key(0))
        paid.append(float(step.reward))
        place, action = turn @ place, turn @ action
    np.testing.assert_allclose(paid, paid[0], rtol=1e-5)


def test_episodes_begin_in_the_middle():
    starts = jax.vmap(lambda key: MultiGoal().reset((), key)[0].place)(jax.random.split(jax.random.key(0), 2000))
    np.testing.assert_allclose(starts.mean(axis=0), 0.0, atol=0.01)
    np.testing.assert_allclose(starts.std(axis=0), 0.1, rtol=0.1)
    np.testing.assert_array_equal(np.argmin(squared_distances(jnp.array(GOALS)), axis=1), range(4))


def test_goals_are_counted_from_the_very_middle():
    run = Walks()
    shares = goal_shares(run, 8)  # east, west, north, south
    np.testing.assert_allclose(shares, [[0.5, 0.25, 0.25, 0], [0.25, 0, 0, 0.25], [0.25, 0.25, 0.25, 0.25]])
    assert least_visited(8).of(run).tolist() == [0.0, 0.0, 0.25]
    assert goals_visited(0.3, 8).of(run).tolist() == [1.0, 0.0, 0.0]
    assert goals_visited(0.05, 8).of(run).tolist() == [3.0, 2.0, 4.0]
