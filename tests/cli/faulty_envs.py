"""Gymnasium environments with exactly one fault each, for ``thespis doctor``, and correct ones to derive them from."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Healthy(gymnasium.Env):
    """A point on a line that actions move; terminates outside ``[-1, 1]``, is truncated after 40 steps."""

    observation_space = spaces.Box(-2.0, 2.0, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    limit = 40

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-0.1, 0.1)
        self.moved, self.time = 0.0, 0
        return self.observe(), self.info()

    def step(self, action):
        self.time += 1
        self.moved = 0.1 * float(action[0]) + 0.02 * self.noise()
        self.x += self.moved
        outside = abs(self.x) > 1.0
        return self.observe(), self.reward(), outside, self.time >= self.limit, self.info()

    def noise(self):
        return float(np.clip(self.np_random.normal(), -3, 3))

    def observe(self):
        return np.array([self.x, self.moved], np.float32)

    def reward(self):
        return 1.0 - abs(self.x)

    def info(self):
        return {}


class HealthyDict(Healthy):
    """Dict observations with an image, and masked discrete actions."""

    observation_space = spaces.Dict(
        {"place": spaces.Box(-2.0, 2.0, (2,), np.float32), "picture": spaces.Box(0, 255, (6, 6, 1), np.uint8)}
    )
    action_space = spaces.Discrete(3)

    def step(self, action):
        assert self.mask()[action], "an illegal action"
        return super().step(np.array([action - 1.0]))

    def observe(self):
        picture = np.zeros((6, 6, 1), np.uint8)
        picture[int(np.clip(3 * self.x + 3, 0, 5))] = 255
        return {"place": super().observe(), "picture": picture}

    def mask(self):
        return np.array([self.x > -0.9, True, self.x < 0.9])

    def info(self):
        return {"action_mask": self.mask().astype(np.int8)}


class FixedHorizon(Healthy):
    """Terminates after 40 steps and observes the time: a correct finite horizon."""

    observation_space = spaces.Box(-5.0, 5.0, (3,), np.float32)

    def step(self, action):
        observation, reward, *_, info = super().step(action)
        return observation, reward, self.time >= self.limit, False, info

    def observe(self):
        return np.append(super().observe(), np.float32(self.time / self.limit))


class OutOfBounds(Healthy):
    def observe(self):
        return super().observe() + np.float32(2.5)


class WrongDtype(Healthy):
    observation_space = spaces.Box(0, 255, (2,), np.uint8)

    def observe(self):
        return np.clip(super().observe(), 0, 1)


class WrongShape(Healthy):
    def observe(self):
        return super().observe()[None]


class OwnChance(Healthy):
    """Random in spite of its seed: it draws from a generator of its own."""

    def noise(self):
        return float(np.random.default_rng().uniform(-1, 1))


class SeedIgnored(Healthy):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=None)


class NotANumber(Healthy):
    def reward(self):
        return float("nan") if self.time == 5 else super().reward()


class LimitAsEnd(Healthy):
    """Its only end is a time limit, reported as ``terminated``."""

    def step(self, action):
        self.x = float(np.clip(self.x, -0.5, 0.5))
        observation, reward, *_, info = super().step(action)
        return observation, reward, self.time >= self.limit, False, info


class NeverEnds(Healthy):
    def step(self, action):
        self.x = float(np.clip(self.x, -0.5, 0.5))
        observation, reward, *_, info = super().step(action)
        return observation, reward, False, False, info


class Overwritten(Healthy):
    """Returns the same array object in every step."""

    buffer = np.zeros(2, np.float32)

    def observe(self):
        self.buffer[:] = super().observe()
        return self.buffer


class NothingLegal(HealthyDict):
    def mask(self):
        return super().mask() & (self.time != 3)

    def step(self, action):
        return Healthy.step(self, np.array([action - 1.0]))


class RewardArray(Healthy):
    def reward(self):
        return np.array([super().reward()])


class BreaksAtBound(Healthy):
    def step(self, action):
        assert action[0] < 1.0, "motor overload"
        return super().step(action)


class RestartsItself(Healthy):
    """Returns the first observation of the next episode as the last one of the old episode."""

    def step(self, action):
        self.x = float(np.clip(self.x, -0.9, 0.9)) + 0.1  # drifts away from where episodes begin
        observation, reward, terminated, truncated, info = super().step(action)
        if truncated or terminated:
            observation, info = self.reset()
        return observation, reward, False, truncated or terminated, info


class HugeReward(Healthy):
    def reward(self):
        return 1e6 * super().reward()


class OldStep(Healthy):
    def step(self, action):
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, info


class NoFlag(Healthy):
    def step(self, action):
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, None, info


FAULTS = {
    "observation bounds": [OutOfBounds],
    "observation dtype": [WrongDtype],
    "observation shape": [WrongShape],
    "determinism": [OwnChance],
    "seed": [SeedIgnored],
    "reward values": [NotANumber],
    "time limit": [LimitAsEnd],
    "episode end": [NeverEnds],
    "aliasing": [Overwritten],
    "action mask": [NothingLegal],
    "reward": [RewardArray],
    "action bounds": [BreaksAtBound],
    "final observation": [RestartsItself],
    "reward scale": [HugeReward],
    "reset and step": [OldStep],
    "end flags": [NoFlag],
}
