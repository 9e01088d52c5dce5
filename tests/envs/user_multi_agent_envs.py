"""Multi-agent environments as a user would write them, with PettingZoo's interface: agents die, join and wait."""

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv


class Candles(ParallelEnv):
    """Candles burn 1 to 4 steps and go out; a late one is lit at step 2. Action 1 earns 1, others the step's number."""

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
        return self._observe_all(self.agents)

    def step(self, actions):
        assert sorted(actions) == sorted(self.agents), "exactly the agents that are present act"
        assert all(1 <= action <= 3 for action in actions.values())
        self.time += 1
        present = list(self.agents)
        for agent in present:
            self.left[agent] -= 1
        terminated = {agent: self.left[agent] == 0 for agent in present}
        self.agents = [agent for agent in present if not terminated[agent]]
        if self.time == 2 and self.agents:
            self.agents.append("late_0")
        obs, infos = self._observe_all({*present, *self.agents})
        rewards = {agent: 1.0 if actions[agent] == 1 else float(self.time) for agent in present}
        return obs, rewards, terminated, dict.fromkeys(present, False), infos

    def _observe_all(self, agents):
        obs = {}
        for agent in agents:
            size = self.observation_space(agent).shape[0]
            obs[agent] = np.array([self.time, self.left[agent], 1.0][:size])
        mask = np.array([True, self.time % 2 == 0, True])
        return obs, {agent: {"action_mask": mask} if self.masked else {} for agent in agents}


class SavableCandles(Candles):
    """The same, with ``save_state`` and ``load_state``."""

    def save_state(self):
        present = [agent in self.agents for agent in self.possible_agents]
        return {"numbers": np.array([self.time, *self.left.values(), *present])}

    def load_state(self, saved):
        self.time, *rest = (int(number) for number in saved["numbers"])
        self.left = dict(zip(self.possible_agents, rest[:3], strict=True))
        self.agents = [agent for agent, present in zip(self.possible_agents, rest[3:], strict=True) if present]


class TruncatedPair(ParallelEnv):
    """Two agents; the first alone is truncated at step 1, the other at step 3."""

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
        present = list(self.agents)
        truncated = {agent: self.time == 3 or agent == "a_0" for agent in present}
        self.agents = [agent for agent in present if not truncated[agent]]
        rewards = {agent: float(actions[agent][0]) for agent in present}
        return (
            dict.fromkeys(present, self.time),
            rewards,
            dict.fromkeys(present, False),
            truncated,
            {agent: {} for agent in present},
        )


class Ring(AECEnv):
    """Three agents act in turn; action 0 leaves and loses 1. The last one wins 2."""

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
        next_agent = self.agents[(order + 1) % len(self.agents)]
        if action == 0:
            self.rewards[mover], self.terminations[mover] = -1.0, True
            if len(self.agents) == 2:
                self.rewards[next_agent], self.terminations[next_agent] = 2.0, True
        if self.moves == 20:
            self.truncations = dict.fromkeys(self.agents, True)
        self.agent_selection = next_agent
        self._accumulate_rewards()
        self._deads_step_first()


def make_candles():
    return Candles()
