"""Multi-goal environment: every step against a reference in plain Python, and goal counts of known walkers."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.components import check_environment
from thespis.core.records import Critique, Report
from thespis.data.feeds import Replay
from thespis.envs.compiled.multi_goal import GOALS, MultiGoal, MultiGoalState, squared_goal_distances
from thespis.envs.registry import make_compiled, resolve_env
from thespis.evaluation.run import Run
from thespis.evidence.multi_goal import MULTI_GOAL_ENV, goal_visit_shares, least_visited_goal_share, num_goals_visited


class Walker:
    """Walks in the direction that its state has for each environment: an angle in quarter turns, or NaN to stay."""

    name, citations, details, feed = "walker", (), (), Replay()

    def init(self, spec, key):
        return jnp.array([[0, 0, 1, 2], [0, jnp.nan, jnp.nan, 3], [0, 1, 2, 3]], "float32")

    def policy(self, state, mode):
        return state

    def init_memory(self, policy, n):
        return ()

    def act(self, policy, memory, view, key):
        angle = jnp.resize(policy, view.observation.shape[0]) * jnp.pi / 2
        direction = jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)
        return jnp.where(jnp.isnan(direction), 0.0, direction), memory, ()

    def judge(self, state, episode):
        return Critique()

    def update(self, state, batch, key):
        return state, Report({})


class WalkerRun(Run):
    """A run with three seeds of ``Walker``."""

    def __init__(self):
        self.config: Any = {"env": MULTI_GOAL_ENV, "seeds": [0, 1, 2]}
        self.method: Any = Walker()

    @property
    def states(self):
        return self.method.init(MultiGoal().spec, jax.random.key(0))


def reference_step(position, action, time, env):
    """Reference step: next position, reward, goal reached, time limit reached."""
    action = [min(max(a, -1.0), 1.0) for a in action]
    position = [min(max(x + a, -7.0), 7.0) for x, a in zip(position, action, strict=True)]
    near = min((position[0] - gx) ** 2 + (position[1] - gy) ** 2 for gx, gy in [(5, 0), (-5, 0), (0, 5), (0, -5)])
    reward = -env.action_cost * (action[0] ** 2 + action[1] ** 2) - env.distance_cost * near
    return position, reward + (env.goal_reward if near**0.5 < 1 else 0.0), near**0.5 < 1, time + 1 == env.time_limit


def test_contract():
    check_environment(MultiGoal())
    check_environment(MultiGoal(time_limit=5, initial_std=3.0), num_steps=12)
    assert resolve_env(MULTI_GOAL_ENV).kind == "compiled" and make_compiled(MULTI_GOAL_ENV) == MultiGoal()


@pytest.mark.parametrize("env", [MultiGoal(), MultiGoal(goal_reward=1.0, action_cost=1.0, distance_cost=0.1)])
def test_every_step_matches_the_reference(env):
    rng = np.random.default_rng(0)
    positions = rng.uniform(-7, 7, (500, 2)).astype("float32")
    actions = rng.uniform(-1.5, 1.5, (500, 2)).astype("float32")
    times = rng.choice([0, env.time_limit - 1], 500).astype("int32")
    _, step = jax.vmap(lambda p, a, t: env.step(MultiGoalState(p, t), a, jax.random.key(0)))(positions, actions, times)
    for i, (position, action, time) in enumerate(zip(positions, actions, times, strict=True)):
        position, reward, reached, timed_out = reference_step(position, action, time, env)
        np.testing.assert_allclose(step.observation[i], position, rtol=1e-6, atol=1e-6)
        assert step.reward[i] == pytest.approx(reward, rel=1e-4, abs=1e-4)
        assert bool(step.terminated[i]) == reached and bool(step.truncated[i]) == (timed_out and not reached)
    assert 5 < int(step.terminated.sum()) < 100 and int(step.truncated.sum()) > 100


def test_rewards_are_symmetric_in_the_goals():
    env, rotation = MultiGoal(), jnp.array([[0.0, -1.0], [1.0, 0.0]])
    position, action = jnp.array([3.7, -0.4]), jnp.array([0.6, -0.3])
    rewards = []
    for _ in GOALS:
        _, step = env.step(MultiGoalState(position, jnp.int32(0)), action, jax.random.key(0))
        rewards.append(float(step.reward))
        position, action = rotation @ position, rotation @ action
    np.testing.assert_allclose(rewards, rewards[0], rtol=1e-5)


def test_initial_positions_are_near_the_center():
    starts = jax.vmap(lambda key: MultiGoal().reset((), key)[0].position)(jax.random.split(jax.random.key(0), 2000))
    np.testing.assert_allclose(starts.mean(axis=0), 0.0, atol=0.01)
    np.testing.assert_allclose(starts.std(axis=0), 0.1, rtol=0.1)
    np.testing.assert_array_equal(np.argmin(squared_goal_distances(jnp.array(GOALS)), axis=1), range(4))


def test_goal_visits_of_known_walkers():
    run = WalkerRun()
    shares = goal_visit_shares(run, 8)  # east, west, north, south
    np.testing.assert_allclose(shares, [[0.5, 0.25, 0.25, 0], [0.25, 0, 0, 0.25], [0.25, 0.25, 0.25, 0.25]])
    assert least_visited_goal_share(8).compute(run).tolist() == [0.0, 0.0, 0.25]
    assert num_goals_visited(0.3, 8).compute(run).tolist() == [1.0, 0.0, 0.0]
    assert num_goals_visited(0.05, 8).compute(run).tolist() == [3.0, 2.0, 4.0]
