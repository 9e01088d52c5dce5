"""Warnings about observations: float64 and values out of bounds, once each, only in the first steps."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from thespis.envs.host.observation_checks import NUM_CHECKED_STEPS, ObservationChecks
from thespis.envs.host.vector import GymnasiumVectorEnv
from thespis.envs.registry import make_host


class Drifting(gymnasium.Env):
    """Observes its step; the declared bounds end before the episode does."""

    observation_space = spaces.Dict({"a": spaces.Box(-1.0, 3.0, (2, 1), np.float32), "b": spaces.Discrete(2)})
    action_space = spaces.Discrete(2)
    dtype, first_step = "float64", 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = self.first_step
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        return self.observe(), 0.0, False, False, {}

    def observe(self):
        return {"a": np.array([[0], [self.steps]], self.dtype), "b": 1}


class Fine(Drifting):
    dtype, first_step = "float32", -1000


def play(envs, steps):
    envs.reset(list(range(envs.num_envs)))
    for _ in range(steps):
        envs.step(np.zeros(envs.num_envs, int))
    return envs.pop_warnings()


def test_faults_are_reported_once():
    envs = make_host(Drifting, 2)
    warnings = play(envs, 10)
    assert len(warnings) == 2 and all("\n" not in line for line in warnings)
    assert "observation['a'][1][0] = 4 is outside its declared bounds [-1, 3]: widen the space, or clip" in warnings[0]
    assert "observation['a'] is float64 (its space declares float32)" in warnings[1]
    assert play(envs, 10) == []
    assert play(make_host(Fine, 1), 1) == [
        "test_observation_checks:Fine: observation['a'][1][0] = -1000 is outside its declared bounds [-1, 3]: "
        "widen the space, or clip the observation"
    ]


def test_vector_environments_are_checked():
    """Gymnasium converts the dtype."""
    envs = GymnasiumVectorEnv(gymnasium.vector.SyncVectorEnv([Drifting] * 2, autoreset_mode="Disabled"))
    (warning,) = play(envs, 10)
    assert "observation['a'][1][0] = 4 is outside its declared bounds [-1, 3]" in warning
    assert play(envs, 10) == []


def test_only_the_first_steps_are_checked():
    checks = ObservationChecks(Drifting(), Drifting.observation_space, "env")
    for _ in range(NUM_CHECKED_STEPS):
        assert checks.active
        checks.count_step()
    assert not checks.active


def test_environments_of_gymnasium_are_not_checked():
    pytest.importorskip("mujoco")
    envs = make_host("gymnasium:Reacher-v5", 1)
    envs.reset([0])
    envs.step(np.zeros((1, 2), "float32"))
    assert envs.pop_warnings() == []
