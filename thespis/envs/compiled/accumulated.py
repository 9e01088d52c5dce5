"""A world that shows what the episode has earned so far, beside what it shows of itself.

With risk it is not enough to know where one stands: what is best depends on what was earned on the way.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.contracts import Environment
from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, dict_space


class Earning(eqx.Module):
    """One episode under way, and the sum of its rewards."""

    inner: PyTree
    earned: Float[Array, ""]


class Accumulated(eqx.Module):
    """``world`` whose observation stands under ``own``, and the sum of rewards, over ``unit``, under ``earned``."""

    world: Environment
    unit: float = eqx.field(static=True, default=1.0)

    @property
    def spec(self) -> EnvSpec:
        """The world's, with one number more to see."""
        told = self.world.spec
        seen = dict_space(earned=Box((1,)), own=told.observation)
        return dataclasses.replace(told, name=f"{told.name}, accumulated", observation=seen)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Earning, TimeStep]:
        """Nothing is earned."""
        inner, step = self.world.reset(params, key)
        return self._answer(inner, jnp.zeros(()), step)

    def step(self, state: Earning, action: PyTree, key: Key[Array, ""]) -> tuple[Earning, TimeStep]:
        """The world's step; its reward is added."""
        inner, step = self.world.step(state.inner, action, key)
        return self._answer(inner, state.earned + step.reward, step)

    def _answer(self, inner: PyTree, earned: Float[Array, ""], step: TimeStep) -> tuple[Earning, TimeStep]:
        seen = {"earned": earned[None] / self.unit, "own": step.observation}
        return Earning(inner, earned), dataclasses.replace(step, observation=seen)
