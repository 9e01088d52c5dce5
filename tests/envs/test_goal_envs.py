"""Gymnasium environments with goals: their rewards as functions of goals, and hindsight replay in the host loop."""

from __future__ import annotations

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

import thespis
from thespis.core.errors import UserError
from thespis.data.feeds import HindsightFuture, Replay
from thespis.envs import registry
from thespis.envs.goals import SparseGoal
from thespis.envs.host.goals import find_goal_rewards
from thespis.methods.online.dqn import DQN


class Line(gymnasium.Env):
    """A walk on a line by Gymnasium's convention for goals: dict observations and ``compute_reward``."""

    def __init__(self, goal_relabeler=None):
        box = gymnasium.spaces.Box(-20.0, 20.0, (1,), "float32")
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = gymnasium.spaces.Dict({name: box for name in names})
        self.action_space = gymnasium.spaces.Discrete(2)
        if goal_relabeler is not None:
            self.goal_relabeler = goal_relabeler

    def compute_reward(self, achieved_goal, desired_goal, info):
        return float(np.linalg.norm(np.asarray(achieved_goal) - desired_goal) <= 0.5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.goal = np.zeros(1, "float32"), self.np_random.integers(-9, 10, 1).astype("float32")
        return self._observe(), {}

    def step(self, action):
        self.x = self.x + np.float32(2 * int(action) - 1)
        return self._observe(), self.compute_reward(self.x, self.goal, {}), False, False, {}

    def _observe(self):
        return {"observation": self.x.copy(), "achieved_goal": self.x.copy(), "desired_goal": self.goal.copy()}


REWARDS = SparseGoal(0.5)


def make_line(relabeler=REWARDS):
    return gymnasium.wrappers.TimeLimit(Line(relabeler), 12)


def test_an_attribute_says_the_rewards_also_under_wrappers():
    assert registry.make_host(make_line, 2).spec.goal_relabeler == REWARDS
    vector = gymnasium.vector.SyncVectorEnv([make_line] * 2)
    assert registry.make_host(vector, 2).spec.goal_relabeler == REWARDS
    wrapper = gymnasium.wrappers.TimeLimit(Line(), 12)
    assert registry.make_host(lambda: wrapper, 1).spec.goal_relabeler is None
    wrapper.goal_relabeler = REWARDS  # a wrapper of one's own around another's environment
    assert find_goal_rewards(wrapper, "line") == REWARDS
    rng = np.random.default_rng(0)
    for achieved, desired in rng.uniform(-1, 1, (50, 2, 1)):
        ours = float(REWARDS.compute_reward(jnp.asarray(achieved), jnp.asarray(desired)))
        assert ours == Line().compute_reward(achieved, desired, {})


def test_an_attribute_without_the_functions_is_refused():
    with pytest.raises(UserError, match="goal_relabeler of line needs the functions compute_reward"):
        find_goal_rewards(make_line(lambda a, d: 0.0), "line")


class PointMazeEnv(gymnasium.Env):
    """What matters of gymnasium-robotics' class of this name."""

    def __init__(self, reward_type="sparse", continuing_task=True):
        self.reward_type, self.continuing_task = reward_type, continuing_task


PointMazeEnv.__module__ = "gymnasium_robotics.envs.maze.point_maze"


def test_rewards_of_point_mazes_are_known():
    assert find_goal_rewards(PointMazeEnv(), "maze") == SparseGoal(0.45)
    assert find_goal_rewards(PointMazeEnv(continuing_task=False), "maze") == SparseGoal(0.45, terminates=True)
    assert find_goal_rewards(PointMazeEnv("dense"), "maze") is None


def test_a_library_that_is_missing_is_named():
    with pytest.raises(UserError, match=r'pip install "thespis-rl\[robotics\]"'):
        registry.make_host("gymnasium:gymnasium_robotics:PointMaze_UMaze-v3", 1)


def train(method, env, tmp_path):
    return thespis.train(method, env=env, steps=2_400, episodes=40, out=tmp_path / "run")


FEED = Replay(buffer_size=5_000, batch_size=64, learning_starts=200, num_envs=2, relabel=HindsightFuture())


@pytest.mark.slow
def test_hindsight_in_the_host_loop(tmp_path):
    """DQN, unchanged, on dict observations: it walks to its goals, which random play seldom does."""
    method = DQN(
        hidden_sizes=(32, 32), learning_rate=2e-3, target_update_interval=50, epsilon_decay_updates=500.0, feed=FEED
    )
    run = train(method, make_line, tmp_path)
    success = {name: np.mean(np.asarray(run.final_scores[name]["scores"]) > 0) for name in ("greedy", "random")}
    assert success["greedy"] > 0.8 > 2 * success["random"] - 0.1, success
    with pytest.raises(UserError, match="an attribute goal_relabeler"):
        train(method, lambda: make_line(None), tmp_path / "unknown")
    with pytest.raises(UserError, match="dicts with observation, achieved_goal, desired_goal"):
        train(method, "gymnasium:CartPole-v1", tmp_path / "plain")
