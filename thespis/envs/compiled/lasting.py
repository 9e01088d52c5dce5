"""A world whose time limit is moved: for what matters in the long run, beyond the episodes that were learnt from."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.contracts import Environment
from thespis.core.records import EnvSpec, TimeStep


class Under(eqx.Module):
    """One episode under way: the world's own state, and the steps taken."""

    inner: Any
    time: Int[Array, ""]


class Lasting(eqx.Module):
    """``world`` with episodes of ``limit`` steps, whatever its own limit says; what terminates it still does.

    The world must be able to go on beyond its own limit, as those do in which time only counts.
    """

    world: Environment
    limit: int = eqx.field(static=True, default=1_000)

    @property
    def spec(self) -> EnvSpec:
        """That of the world, but for the limit."""
        return dataclasses.replace(self.world.spec, time_limit=self.limit)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Under, TimeStep]:
        """As the world's."""
        state, first = self.world.reset(params, key)
        return Under(state, jnp.zeros((), "int32")), first

    def step(self, state: Under, action: PyTree, key: Key[Array, ""]) -> tuple[Under, TimeStep]:
        """As the world's, but for the limit."""
        inner, step = self.world.step(state.inner, action, key)
        time = state.time + 1
        truncated = (time >= self.limit) & ~step.terminated
        return Under(inner, time), dataclasses.replace(step, truncated=truncated)
