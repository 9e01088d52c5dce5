"""A square of cells with nothing in it but a goal in the far corner: the larger it is, the rarer is its reward.

The grid of Suttle et al. (2023, arXiv:2301.12083) as their code has it, where a step that ends on the goal, staying
there included, pays 1 and any other nothing. Nothing ends there; theirs, in its newest form, ends on the goal.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete

MOVES = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))
"""Stay, up, down, left, right, as steps over rows and columns."""


class Searching(eqx.Module):
    """One episode under way: row and column."""

    place: Int[Array, "2"]
    time: Int[Array, ""]


class GoalGrid(eqx.Module):
    """``side`` times ``side`` cells, seen one-hot. Episodes begin in the upper left, the goal lies in the lower right.

    Whoever walks into the edge stays where he is. Episodes are cut after ``limit`` steps.
    """

    side: int = eqx.field(static=True, default=5)
    limit: int = eqx.field(static=True, default=200)

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limit."""
        return EnvSpec("goal-grid", Box((self.side**2,), 0.0, 1.0), Discrete(len(MOVES)), time_limit=self.limit)

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[Searching, TimeStep]:
        """In the upper left corner."""
        state = Searching(jnp.zeros(2, "int32"), jnp.zeros((), "int32"))
        return state, self._answer(state)

    def step(self, state: Searching, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[Searching, TimeStep]:
        """One move; nothing is left to chance."""
        place = jnp.clip(state.place + jnp.array(MOVES, "int32")[action], 0, self.side - 1)
        state = Searching(place, state.time + 1)
        return state, self._answer(state)

    def _answer(self, state: Searching) -> TimeStep:
        cell = state.place @ jnp.array([self.side, 1], "int32")
        paid: Array = (cell == self.side**2 - 1).astype("float32")
        seen = jax.nn.one_hot(cell, self.side**2)
        return TimeStep(seen, paid, jnp.zeros((), bool), state.time >= self.limit)


LARGER = GoalGrid(side=8)
"""At random its goal is found in three episodes of ten, that of the default in eight."""
