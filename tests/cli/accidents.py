"""Worlds of a user to whom something happens; found by the tests' processes through PYTHONPATH."""

from __future__ import annotations

import ast
import os
import signal
import time
from pathlib import Path

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box

HAPPENS = 1500  # steps of a world until it does


class Calm(gym.Env):
    """A point that is pushed about; 20 steps an episode."""

    observation_space = gym.spaces.Box(-10.0, 10.0, (2,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self):
        self.made = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = self.np_random.uniform(-1, 1), 0
        return self.look(), {}

    def step(self, action):
        self.made += 1
        self.place = float(np.clip(self.place + 0.3 * float(action[0]), -5, 5))
        self.steps += 1
        return self.look(), self.reward(), False, self.steps == 20, {}

    def look(self):
        return np.array([self.place, self.steps / 20], np.float32)

    def reward(self):
        return -abs(self.place)


class Slow(Calm):
    """Takes 5 ms a step and can tell its state; leaves a note of the network in which it was made, if told where."""

    def __init__(self):
        super().__init__()
        if notes := os.environ.get("NOTES"):
            Path(notes, os.readlink("/proc/self/ns/net")).touch()

    def step(self, action):
        time.sleep(0.005)
        return super().step(action)

    def save_state(self):
        words = repr((self.place, self.steps, self.made, self.np_random.bit_generator.state))
        return {"words": np.frombuffer(words.encode(), "uint8")}

    def load_state(self, saved):
        words = ast.literal_eval(saved["words"].tobytes().decode())
        self.place, self.steps, self.made, self.np_random.bit_generator.state = words


class Asks:
    """Talks: asks for one of 200 words, slowly."""

    turns, message, utterance = 2, 3, 2
    words = tuple(f"w{i}" for i in range(200))

    def reset(self, rng):
        self.word, self.left = str(rng.choice(self.words)), self.turns
        return self.word

    def step(self, said):
        time.sleep(0.002)
        self.left -= 1
        return self.word, float(said == self.word), self.left == 0


class Raises(Calm):
    def reward(self):
        if self.made == HAPPENS:
            raise RuntimeError("the motor is on fire")
        return super().reward()


class EndsItsProcess(Calm):
    def reward(self):
        if self.made == 50:  # before there is a checkpoint
            os.kill(os.getpid(), signal.SIGKILL)
        return super().reward()


class NotANumber(Calm):
    def reward(self):
        return float("nan") if self.made == HAPPENS else super().reward()


class WrongShape(Calm):
    def look(self):
        return np.zeros(3 if self.made == HAPPENS else 2, np.float32)


class WantsOther(Calm):
    """Declares one action and wants two."""

    def step(self, action):
        assert action.shape == (2,), f"two actions are needed, not {action.shape}"
        return super().step(action)


class CompiledState(eqx.Module):
    place: jax.Array
    steps: jax.Array


class CompiledNaN(eqx.Module):
    """In JAX; it pays to go far, but beyond 2.5, where only a trained actor gets, the reward is not a number."""

    spec = EnvSpec("strays", Box((1,)), Box((1,), -1.0, 1.0), time_limit=50)

    def reset(self, params, key):
        state = CompiledState(jnp.zeros(()), jnp.int32(0))
        return state, self.answer(state)

    def step(self, state, action, key):
        state = CompiledState(state.place + 0.1 * action[0], state.steps + 1)
        return state, self.answer(state)

    def answer(self, state):
        reward = jnp.where(state.place > 2.5, jnp.nan, state.place)
        return TimeStep(state.place[None], reward, jnp.zeros((), bool), state.steps >= 50)
