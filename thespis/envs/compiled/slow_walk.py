r"""A walk along a windy line with a lure at one end and the prize at the other: a world that mixes slowly.

Whoever steps to the right with the same chance :math:`p` everywhere (his choice and the wind's together) walks a
birth-and-death chain. Beside 1 its eigenvalues are (a walk with reflecting barriers)

.. math:: \lambda_k = stay + (1 - stay) \, 2 \sqrt{p (1 - p)} \cos(\pi k / n), \qquad k = 1 ... n - 1
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete


class Walking(eqx.Module):
    """One episode under way."""

    place: Int[Array, ""]
    time: Int[Array, ""]


class SlowWalk(eqx.Module):
    """``places`` in a line, seen one-hot; it begins in the middle and is cut after ``limit`` steps, but never ends.

    Choices are left (0) and right (1). With chance ``stay`` nothing happens; else the choice is obeyed with chance
    ``(1 + grip) / 2`` and its opposite done otherwise. Beyond an end one stays there. A step that ends in the last
    place pays 1, one that ends in the first pays ``lure``, all others nothing.
    """

    places: int = eqx.field(static=True, default=11)
    stay: float = eqx.field(static=True, default=0.3)
    grip: float = eqx.field(static=True, default=0.3)
    lure: float = eqx.field(static=True, default=0.2)
    limit: int = eqx.field(static=True, default=200)

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limit."""
        return EnvSpec("slow-walk", Box((self.places,), 0.0, 1.0), Discrete(2), time_limit=self.limit)

    def relaxation(self, right: float) -> float:
        """Steps in which what is left of the beginning falls to 1/e, where ``right`` is chosen with this chance."""
        p = (1 + self.grip * (2 * right - 1)) / 2
        second = self.stay + (1 - self.stay) * 2 * math.sqrt(p * (1 - p)) * math.cos(math.pi / self.places)
        return 1 / (1 - second)

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[Walking, TimeStep]:
        """In the middle."""
        state = Walking(jnp.full((), self.places // 2, "int32"), jnp.zeros((), "int32"))
        return state, self._answer(state)

    def step(self, state: Walking, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[Walking, TimeStep]:
        """One step, or none."""
        stay_key, wind_key = jax.random.split(key)
        obeyed = jax.random.bernoulli(wind_key, (1 + self.grip) / 2)
        way = jnp.where(obeyed == (action == 1), 1, -1)
        way = jnp.where(jax.random.bernoulli(stay_key, self.stay), 0, way)
        state = Walking(jnp.clip(state.place + way, 0, self.places - 1), state.time + 1)
        return state, self._answer(state)

    def _answer(self, state: Walking) -> TimeStep:
        paid = jnp.where(state.place == 0, self.lure, 0.0) + jnp.where(state.place == self.places - 1, 1.0, 0.0)
        seen = jax.nn.one_hot(state.place, self.places)
        paid = jnp.where(state.time > 0, paid, 0.0)
        return TimeStep(seen, paid, jnp.zeros((), bool), state.time >= self.limit)
