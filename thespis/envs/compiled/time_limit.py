"""Time-limit wrapper: replaces an environment's time limit, for example to evaluate beyond the training horizon."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.contracts import Environment
from thespis.core.records import EnvSpec, TimeStep


class TimeLimitState(eqx.Module):
    """State of one episode: the environment's own state, and the number of steps taken."""

    env_state: Any
    time: Int[Array, ""]


class TimeLimit(eqx.Module):
    """Time-limit wrapper: ``env`` with episodes of ``time_limit`` steps, whatever its own limit.

    Termination is unchanged. The environment must be able to continue beyond its own limit, as environments do whose
    limit only counts steps.
    """

    env: Environment
    time_limit: int = eqx.field(static=True, default=1_000)

    @property
    def spec(self) -> EnvSpec:
        """The environment's spec with the new time limit."""
        return dataclasses.replace(self.env.spec, time_limit=self.time_limit)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[TimeLimitState, TimeStep]:
        """Start an episode of the wrapped environment."""
        state, first = self.env.reset(params, key)
        return TimeLimitState(state, jnp.zeros((), "int32")), first

    def step(self, state: TimeLimitState, action: PyTree, key: Key[Array, ""]) -> tuple[TimeLimitState, TimeStep]:
        """One step of the environment, truncated by the new limit."""
        env_state, step = self.env.step(state.env_state, action, key)
        time = state.time + 1
        truncated = (time >= self.time_limit) & ~step.terminated
        return TimeLimitState(env_state, time), dataclasses.replace(step, truncated=truncated)
