"""A user's environment, which the processes of sweeps import."""

from __future__ import annotations

import gymnasium as gym
import numpy as np


class Line(gym.Env):
    """A point on a line that actions move; 10 steps per episode."""

    observation_space = gym.spaces.Box(-10.0, 10.0, (1,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = self.np_random.uniform(-1, 1), 0
        return np.array([self.place], np.float32), {}

    def step(self, action):
        self.place, self.steps = self.place + 0.3 * float(action[0]), self.steps + 1
        return np.array([self.place], np.float32), -abs(self.place), False, self.steps == 10, {}
