"""Noisy-reward wrapper: adds Gaussian noise to every reward, which tempts critics to over-estimate.

A maximum over noisy estimates is too large (Thrun and Schwartz 1993, "Issues in using function approximation for
reinforcement learning"). The noise has a mean of 0, so that the best policy stays the best.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
from jaxtyping import Array, Key, PyTree

from thespis.core.contracts import Environment
from thespis.core.records import EnvSpec, TimeStep
from thespis.runtime.keys import fold


class NoisyReward(eqx.Module):
    """Noisy-reward wrapper: ``env`` with normal noise of standard deviation ``std`` on the reward of every step."""

    env: Environment
    std: float = eqx.field(static=True, default=1.0)
    """Standard deviation of the noise, in the units of the reward."""

    @property
    def spec(self) -> EnvSpec:
        """The environment's spec, with returns that have no bounds."""
        return dataclasses.replace(self.env.spec, return_bounds=None)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[PyTree, TimeStep]:
        """Start an episode of the wrapped environment."""
        return self.env.reset(params, key)

    def step(self, state: PyTree, action: PyTree, key: Key[Array, ""]) -> tuple[PyTree, TimeStep]:
        """One step of the environment, with noise on its reward."""
        state, step = self.env.step(state, action, fold(key, "step"))
        noise = self.std * jax.random.normal(fold(key, "reward noise"))
        return state, dataclasses.replace(step, reward=step.reward + noise)
