"""Worlds of many agents as a user would write them, with PettingZoo's interface: agents die, join, wait, are cut."""

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv


class Candles(ParallelEnv):
    """Candles burn 1 to 4 steps and go out; a late one is lit at step 2. Who is asked 0 gets 1, else its step."""

    metadata = {"name": "candles"}  # noqa: RUF012
    possible_agents = ("candle_0", "candle_1", "late_0")

    def __init__(self, masked=True):
        self.agents, self.masked = [], masked

    def observation_space(self, agent):
        return spaces.Box(-10, 10, (2,), np.float64) if agent == "late_0" else spaces.Box(-10, 10, (3,), np.float64)

    def action_space(self, agent):
        return spaces.Discrete(3, start=1)

    def reset(self, seed=None, options=None):
        self.random = np.random.default_rng(seed)
        self.agents, self.time = ["candle_0", "candle_1"], 0
        self.left = {agent: int(self.random.integers(1, 5)) for agent in self.possible_agents}
        return self._told(self.agents)

    def step(self, actions):
        assert sorted(actions) == sorted(self.agents), "every agent that is there acts, and no other"
        assert all(1 <= action <= 3 for action in actions.values())
        self.time += 1
        here = list(self.agents)
        for agent in here:
            self.left[agent] -= 1
        died = {agent: self.left[agent] == 0 for agent in here}
        self.agents = [agent for agent in here if not died[agent]]
        if self.time == 2 and self.agents:
            self.agents.append("late_0")
        seen, infos = self._told({*here, *self.agents})
        rewards = {agent: 1.0 if actions[agent] == 1 else float(self.time) for agent in here}
        return seen, rewards, died, dict.fromkeys(here, False), infos

    def _told(self, agents):
        seen = {}
        for agent in agents:
            size = self.observation_space(agent).shape[0]
            seen[agent] = np.array([self.time, self.left[agent], 1.0][:size])
        mask = np.array([True, self.time % 2 == 0, True])
        return seen, {agent: {"action_mask": mask} if self.masked else {} for agent in agents}


class Told(Candles):
    """The same, able to tell its state."""

    def save_state(self):
        there = [agent in self.agents for agent in self.possible_agents]
        return {"numbers": np.array([self.time, *self.left.values(), *there])}

    def load_state(self, saved):
        self.time, *rest = (int(number) for number in saved["numbers"])
        self.left = dict(zip(self.possible_agents, rest[:3], strict=True))
        self.agents = [agent for agent, there in zip(self.possible_agents, rest[3:], strict=True) if there]


class Cut(ParallelEnv):
    """Two agents; the first is cut by itself at step 1, everything at step 3."""

    metadata = {"name": "cut"}  # noqa: RUF012
    possible_agents = ("a_0", "a_1")

    def observation_space(self, agent):
        return spaces.Discrete(5)

    def action_space(self, agent):
        return spaces.Box(-2.0, 4.0, (1,), np.float32)

    def reset(self, seed=None, options=None):
        self.agents, self.time = list(self.possible_agents), 0
        return dict.fromkeys(self.agents, 0), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.time += 1
        here = list(self.agents)
        cut = {agent: self.time == 3 or agent == "a_0" for agent in here}
        self.agents = [agent for agent in here if not cut[agent]]
        rewards = {agent: float(actions[agent][0]) for agent in here}
        return dict.fromkeys(here, self.time), rewards, dict.fromkeys(here, False), cut, {agent: {} for agent in here}


class Ring(AECEnv):
    """Three say a number in turn; who says 0 leaves. The last one wins 2, who leaves loses 1."""

    metadata = {"name": "ring"}  # noqa: RUF012

    def __init__(self):
        super().__init__()
        self.possible_agents = ["r_0", "r_1", "r_2"]

    def observation_space(self, agent):
        return spaces.Box(0, 100, (2,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def observe(self, agent):
        return np.array([self.possible_agents.index(agent), self.moves], np.float32)

    def reset(self, seed=None, options=None):
        self.agents, self.moves = self.possible_agents[:], 0
        self.rewards, self._cumulative_rewards = dict.fromkeys(self.agents, 0.0), dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}
        self.agent_selection = self.agents[0]

    def step(self, action):
        mover = self.agent_selection
        if self.terminations[mover] or self.truncations[mover]:
            self._was_dead_step(action)
            return
        self._clear_rewards()
        self.moves += 1
        order = self.agents.index(mover)
        following = self.agents[(order + 1) % len(self.agents)]
        if action == 0:
            self.rewards[mover], self.terminations[mover] = -1.0, True
            if len(self.agents) == 2:
                self.rewards[following], self.terminations[following] = 2.0, True
        if self.moves == 20:
            self.truncations = dict.fromkeys(self.agents, True)
        self.agent_selection = following
        self._accumulate_rewards()
        self._deads_step_first()


def make_candles():
    return Candles()
