"""Environments that fail, are slow or need to be saved; processes started by tests find them through PYTHONPATH."""

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

FAULT_STEP = 1500  # the step of an environment in which its fault appears


class Calm(gym.Env):
    """A point on a line that actions move; 20 steps per episode. It has no fault."""

    observation_space = gym.spaces.Box(-10.0, 10.0, (2,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self):
        self.total_steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = self.np_random.uniform(-1, 1), 0
        return self.observe(), {}

    def step(self, action):
        self.total_steps += 1
        self.place = float(np.clip(self.place + 0.3 * float(action[0]), -5, 5))
        self.steps += 1
        return self.observe(), self.reward(), False, self.steps == 20, {}

    def observe(self):
        return np.array([self.place, self.steps / 20], np.float32)

    def reward(self):
        return -abs(self.place)


class Slow(Calm):
    """Takes 5 ms per step and can save its state. It notes its network namespace in the directory ``NOTES``, if set."""

    def __init__(self):
        super().__init__()
        if notes := os.environ.get("NOTES"):
            Path(notes, os.readlink("/proc/self/ns/net")).touch()

    def step(self, action):
        time.sleep(0.005)
        return super().step(action)

    def save_state(self):
        words = repr((self.place, self.steps, self.total_steps, self.np_random.bit_generator.state))
        return {"words": np.frombuffer(words.encode(), "uint8")}

    def load_state(self, saved):
        words = ast.literal_eval(saved["words"].tobytes().decode())
        self.place, self.steps, self.total_steps, self.np_random.bit_generator.state = words


class Asks:
    """A text environment that asks for one of 200 words, slowly."""

    max_turns, max_message_tokens, max_response_tokens = 2, 3, 2
    words = tuple(f"w{i}" for i in range(200))

    def reset(self, rng):
        self.word, self.left = str(rng.choice(self.words)), self.max_turns
        return self.word

    def step(self, response):
        time.sleep(0.002)
        self.left -= 1
        return self.word, float(response == self.word), self.left == 0


class Raises(Calm):
    """Raises an exception in one step."""

    def reward(self):
        if self.total_steps == FAULT_STEP:
            raise RuntimeError("the motor is on fire")
        return super().reward()


class EndsItsProcess(Calm):
    """Kills its own process."""

    def reward(self):
        if self.total_steps == 50:  # before there is a checkpoint
            os.kill(os.getpid(), signal.SIGKILL)
        return super().reward()


class NotANumber(Calm):
    """Returns a NaN reward in one step."""

    def reward(self):
        return float("nan") if self.total_steps == FAULT_STEP else super().reward()


class WrongShape(Calm):
    """Returns an observation of the wrong shape in one step."""

    def observe(self):
        return np.zeros(3 if self.total_steps == FAULT_STEP else 2, np.float32)


class WantsOther(Calm):
    """Declares an action of size one and requires two."""

    def step(self, action):
        assert action.shape == (2,), f"two actions are needed, not {action.shape}"
        return super().step(action)


class CompiledState(eqx.Module):
    place: jax.Array
    steps: jax.Array


class CompiledNaN(eqx.Module):
    """Compiled; rewards large positions, but beyond 2.5, which only a trained actor reaches, the reward is NaN."""

    spec = EnvSpec("strays", Box((1,)), Box((1,), -1.0, 1.0), time_limit=50)

    def reset(self, params, key):
        state = CompiledState(jnp.zeros(()), jnp.int32(0))
        return state, self.time_step(state)

    def step(self, state, action, key):
        state = CompiledState(state.place + 0.1 * action[0], state.steps + 1)
        return state, self.time_step(state)

    def time_step(self, state):
        reward = jnp.where(state.place > 2.5, jnp.nan, state.place)
        return TimeStep(state.place[None], reward, jnp.zeros((), bool), state.steps >= 50)
