"""Lanes to one goal: the shortest is the best on average and now and then goes badly wrong, the longest is safe."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete
from thespis.envs.compiled.accumulated import Accumulated


class Step(eqx.Module):
    """One episode under way: lane and column."""

    lane: Int[Array, ""]
    column: Int[Array, ""]
    time: Int[Array, ""]


class RiskyPath(eqx.Module):
    """Actions: up a lane, down a lane, onwards. A step costs 1, the goal is the lowest lane's end.

    Onwards on lane ``i`` costs ``loss`` more with chance ``risks[i]``. ``limit`` steps are all there is. Seen are lane,
    column and time, one-hot.
    """

    risks: tuple[float, ...] = eqx.field(static=True, default=(0.1, 0.04, 0.0))
    length: int = eqx.field(static=True, default=4)
    loss: float = eqx.field(static=True, default=6.0)
    limit: int = eqx.field(static=True, default=12)

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limit."""
        seen = len(self.risks) + self.length + 1 + self.limit
        return EnvSpec("risky-path", Box((seen,), 0.0, 1.0), Discrete(3), time_limit=self.limit)

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[Step, TimeStep]:
        """At the lowest lane's beginning."""
        zero = jnp.zeros((), "int32")
        state = Step(zero, zero, zero)
        return state, self._answer(state, jnp.zeros(()))

    def step(self, state: Step, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[Step, TimeStep]:
        """One step; at an end of the lanes or of the columns one stays, which costs as much."""
        onwards = (action == 2) & (state.column < self.length)
        fails = onwards & jax.random.bernoulli(key, jnp.array(self.risks)[state.lane])
        lane = jnp.clip(state.lane + jnp.array([1, -1, 0], "int32")[action], 0, len(self.risks) - 1)
        state = Step(lane, state.column + onwards.astype("int32"), state.time + 1)
        return state, self._answer(state, -1.0 - self.loss * fails)

    def _answer(self, state: Step, paid: Float[Array, ""]) -> TimeStep:
        places = (state.lane, len(self.risks)), (state.column, self.length + 1), (state.time, self.limit)
        there = (state.lane == 0) & (state.column == self.length)
        seen = jnp.concatenate([jax.nn.one_hot(x, n) for x, n in places])
        return TimeStep(seen, paid, there | (state.time >= self.limit), jnp.zeros((), bool))


TOLD = Accumulated(RiskyPath(), unit=10.0)
