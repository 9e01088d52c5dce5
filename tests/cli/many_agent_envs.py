"""Environments of several agents and of text, as a user would write them, for ``thespis doctor``."""

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv


class Meeting(ParallelEnv):
    """Two agents on a line are rewarded for being close; ten steps."""

    metadata = {"name": "meeting"}  # noqa: RUF012

    def __init__(self):
        self.possible_agents = ["a", "b"]

    def observation_space(self, agent):
        return spaces.Box(-1, 1, (3,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(3)

    def reset(self, seed=None, options=None):
        self.agents, self.time, self.places = list(self.possible_agents), 0, self.first_places(seed)
        return self._observe(), {agent: {} for agent in self.agents}

    def first_places(self, seed):
        return np.random.default_rng(seed).uniform(-1, 1, 2)

    def step(self, actions):
        self.time += 1
        for i, agent in enumerate(self.agents):
            self.places[i] = np.clip(self.places[i] + 0.2 * (actions[agent] - 1), -1, 1)
        done, reward, obs = self.time == 10, -float(abs(self.places[0] - self.places[1])), self._observe()
        agents, self.agents = self.agents, [] if done else self.agents
        return (
            obs,
            dict.fromkeys(agents, reward),
            dict.fromkeys(agents, False),
            dict.fromkeys(agents, done),
            {a: {} for a in agents},
        )

    def _observe(self):
        return {agent: np.array([*self.places, self.time / 10], np.float32) for agent in self.agents}


class UnseededMeeting(Meeting):
    """The first places do not follow from the seed."""

    def first_places(self, seed):
        return np.random.default_rng().uniform(-1, 1, 2)


class Undeclared(Meeting):
    """Does not declare its agents."""

    def __init__(self):
        pass


class Countdown(AECEnv):
    """Two agents take one or two of seven matches in turn; who takes the last one wins."""

    metadata = {"name": "matches"}  # noqa: RUF012

    def __init__(self):
        super().__init__()
        self.possible_agents = ["first", "second"]

    def observation_space(self, agent):
        return spaces.Box(0, 7, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def observe(self, agent):
        return np.array([self.left], np.float32)

    def reset(self, seed=None, options=None):
        self.agents, self.left = list(self.possible_agents), int(np.random.default_rng(seed).integers(5, 8))
        self.rewards = self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
        self.infos, self.agent_selection = {agent: {} for agent in self.agents}, "first"

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent]:
            return self._was_dead_step(action)
        other = next(a for a in self.possible_agents if a != agent)
        self.left = max(self.left - 1 - int(action), 0)
        won = self.left == 0
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.rewards = {agent: float(won), other: -float(won)}
        self.terminations = dict.fromkeys(self.agents, won)
        self.agent_selection = other
        self._accumulate_rewards()


class Repeat:
    """A text environment of strings: repeat the word."""

    max_turns, max_message_tokens, max_response_tokens = 2, 3, 2
    words = ("yes", "no", "maybe")

    def reset(self, rng):
        self.word, self.left = str(rng.choice(self.words)), self.max_turns
        return self.word

    def step(self, response):
        self.left -= 1
        return self.word, float(response == self.word), self.left == 0


class GymnasiumRepeat(gymnasium.Env):
    """The same with Gymnasium's interface and spaces of text."""

    words = Repeat.words

    def __init__(self):
        self.observation_space, self.action_space = spaces.Text(8), spaces.Text(8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.word = str(self.np_random.choice(self.words))
        return self.word, {}

    def step(self, action):
        return self.word, float(action == self.word), True, False, {}


MEETING = Meeting()
