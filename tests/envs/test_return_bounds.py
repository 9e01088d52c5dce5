"""Bounds of returns that an environment declares itself."""

import gymnasium
import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.envs import registry
from thespis.envs.return_bounds import return_bounds


class Bounded(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    return_bounds: object = (-1, 3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 0.0, True, False, {}


def spec_of(env):
    envs = registry.make_host(env, 1)
    envs.close()
    return envs.spec


def test_declared_bounds_are_in_the_spec():
    assert spec_of(Bounded).return_bounds == (-1.0, 3.0)
    assert spec_of(lambda: gymnasium.wrappers.TimeLimit(Bounded(), 5)).return_bounds == (-1.0, 3.0)
    assert spec_of("gymnasium:CartPole-v1").return_bounds is None  # they are in the table
    assert return_bounds("gymnasium:CartPole-v1") == (0.0, 500.0)
    assert return_bounds("gymnasium:CartPole-v1", [-1.0, 3.0]) == (-1.0, 3.0)


@pytest.mark.parametrize("wrong", [(3, -1), 5, (1, 2, 3), ("low", "high")])
def test_wrong_bounds_are_refused(wrong):
    class Wrong(Bounded):
        return_bounds = wrong

    with pytest.raises(UserError, match=r"return_bounds is .*: it must be"):
        spec_of(Wrong)
