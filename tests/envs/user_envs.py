"""Environments as a user would write them, for tests of the host adapters: coded observations, masks, trees, errors."""

import ast
import collections
import enum
import random

import gymnasium
import numpy as np
from gymnasium import spaces

from thespis.envs.host.state_encoding import StateMixin


class Coded(gymnasium.Env):
    """Observes ``[random number, episode, step]``; 1 to 5 steps, terminates or truncates in turn."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = spaces.Discrete(2)
    steps_taken = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.draw, self.episode = self.np_random.random(), -1
        self.episode += 1
        self.time, self.length = 0, int(self.np_random.integers(1, 6))
        return self._observe(), {}

    def step(self, action):
        type(self).steps_taken += 1
        self.time += 1
        over, truncates = self.time >= self.length, self.episode % 2 == 1
        return self._observe(), float(self.time), over and not truncates, over and truncates, {}

    def _observe(self):
        return np.array([self.draw, self.episode, self.time])


class Saved(Coded):
    """The same, with ``save_state`` and ``load_state``."""

    def save_state(self):
        words = repr(self.np_random.bit_generator.state)
        numbers = np.array([self.draw, self.episode, self.time, self.length])
        return {"numbers": numbers, "bits": np.frombuffer(words.encode(), "uint8")}

    def load_state(self, saved):
        self.draw, *rest = (value.item() for value in saved["numbers"])
        self.episode, self.time, self.length = map(int, rest)
        self.np_random.bit_generator.state = ast.literal_eval(saved["bits"].tobytes().decode())


class Direction(enum.Enum):
    """The way of a walker."""

    LEFT = -1
    RIGHT = 1


class Walker:
    """An object inside an environment."""

    def __init__(self, rng):
        self.rng, self.way, self.places = rng, Direction.RIGHT, collections.deque([0.0], maxlen=3)

    def walk(self):
        if self.rng.random() < 0.3:
            self.way = Direction(-self.way.value)
        self.places.append(self.places[-1] + self.way.value)


class Stateful(StateMixin, gymnasium.Env):
    """Keeps state of many kinds over episodes: objects that are shared, arrays, counts, three random generators."""

    observation_space = spaces.Box(-np.inf, np.inf, (6,), np.float32)
    unsaved_attributes = ("window",)

    def __init__(self):
        self.action_space = spaces.Discrete(2)
        self.window, self.scale = object(), lambda x: x / 10
        self.python_rng, self.legacy_rng = random.Random(1), np.random.RandomState(2)
        self.visits, self.totals = collections.defaultdict(int), {"episodes": 0, ("a", 1): 0.1}
        self.walkers, self.board = [], np.zeros((2, 2), np.int16)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        walker = Walker(self.np_random)
        self.walkers = [*self.walkers[-2:], walker]
        self.newest, self.steps, self.seen = walker, 0, {0}
        self.totals["episodes"] += 1
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        self.newest.walk()
        self.visits[int(action)] += 1
        self.seen.add(self.steps)
        self.board[self.steps % 2, int(action)] += 1
        self.totals[("a", 1)] += self.python_rng.random() + self.legacy_rng.rand()
        reward = float(self.np_random.normal()) + self.walkers[-1].places[-1]
        return self.observe(), reward, self.np_random.random() < 0.1, self.steps == 12, {}

    def observe(self):
        walks = sum(sum(walker.places) for walker in self.walkers)
        numbers = (
            self.board.sum(),
            self.totals["episodes"],
            self.totals[("a", 1)],
            walks,
            self.visits[1],
            len(self.seen),
        )
        return np.array([self.scale(number) for number in numbers], np.float32)


class Masked(Coded):
    """Has an action mask with a single legal action: the parity of the step."""

    action_space = spaces.Discrete(2, start=5)

    def reset(self, *, seed=None, options=None):
        observation, _ = super().reset(seed=seed, options=options)
        return observation, {"action_mask": self._mask()}

    def step(self, action):
        assert action == 5 + self.time % 2, "an illegal action arrived"
        return *super().step(action)[:4], {"action_mask": self._mask()}

    def _mask(self):
        return np.arange(2) == self.time % 2


class Trees(gymnasium.Env):
    """Dict and tuple spaces for observations and actions; discrete spaces that do not start at 0."""

    observation_space = spaces.Dict(
        {
            "pair": spaces.Tuple((spaces.Discrete(3, start=-1), spaces.MultiBinary(2))),
            "box": spaces.Box(0, 1, (2,)),
        }
    )
    action_space = spaces.Dict(
        {
            "z": spaces.MultiDiscrete([[2, 3]]),
            "a": spaces.Tuple((spaces.Box(-2, 2, (1,)), spaces.MultiBinary(3))),
        }
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observe(-1), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        return self._observe(1), np.float64(0.5), False, np.bool_(True), {}

    def _observe(self, choice):
        return {"box": np.full(2, 0.25, np.float32), "pair": (np.int64(choice), np.array([1, 0], np.int8))}


class Broken(Coded):
    """Raises an error in its third step."""

    def step(self, action):
        if self.time == 2:
            raise RuntimeError("the robot fell off the table")
        self.length = 9
        return super().step(action)


class WrongShape(Coded):
    """Declares three numbers and returns two."""

    def _observe(self):
        return np.zeros(2)


class OldStep(Coded):
    """Returns four values, as gym before 0.26."""

    def step(self, action):
        return self._observe(), 0.0, False, {}


class Unplugged(Coded):
    """Raises an error when it is constructed."""

    def __init__(self):
        raise OSError("no such device")


class Duck:
    """Does not inherit from Gymnasium."""

    observation_space = spaces.Box(0, 255, (4, 4, 3), np.uint8)
    action_space = spaces.Box(np.array([-1.0, 0.0]), np.array([1.0, 2.0]), dtype=np.float64)

    def reset(self, *, seed=None, options=None):
        return np.zeros((4, 4, 3), np.uint8), {}

    def step(self, action):
        return np.ones((4, 4, 3), np.uint8), action.sum(), False, False, {}

    def close(self):
        pass


class Sized(Coded):
    """Observes ``size`` numbers."""

    def __init__(self, size=3):
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float64)

    def _observe(self):
        return np.zeros(self.observation_space.shape)


INSTANCE = Coded()
