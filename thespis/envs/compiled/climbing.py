"""The climbing game of three, of whom one is left out: where two must dare the best choice together or not at all."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.agents import Group
from thespis.core.records import Each, EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete, dict_space

PAYS = ((11.0, -30.0, 0.0), (-30.0, 7.0, 6.0), (0.0, 0.0, 5.0))
"""Claus and Boutilier, 1998: rows are the choices of the first of the two, columns those of the second."""


class Climbing(eqx.Module):
    """One step of three agents, all paid alike: two play the climbing game, what the third does counts nothing.

    All see who is left out, one-hot; each is so with the same chance. The first of the other two, in their order,
    chooses the row.
    """

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits."""
        seen, done = dict_space(agent=Box((3,), 0.0, 1.0)), dict_space(agent=Discrete(3))
        return EnvSpec("climbing", seen, done, groups=(Group("agent", 3),))

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Int[Array, ""], TimeStep]:
        """Who is left out."""
        out = jax.random.randint(key, (), 0, 3, "int32")
        return out, self._answer(out, jnp.zeros(()), jnp.zeros((), bool))

    def step(
        self, state: Int[Array, ""], action: dict[str, Int[Array, " agent"]], key: Key[Array, ""]
    ) -> tuple[Int[Array, ""], TimeStep]:
        """The one joint choice."""
        row, column = (action["agent"][jnp.array(players)[state]] for players in ((1, 0, 0), (2, 2, 1)))
        return state, self._answer(state, jnp.array(PAYS)[row, column], jnp.ones((), bool))

    def _answer(self, out: Int[Array, ""], reward: Float[Array, ""], over: Array) -> TimeStep:
        seen = jnp.broadcast_to(jax.nn.one_hot(out, 3), (3, 3))
        each = {"agent": Each(jnp.broadcast_to(reward, (3,)), jnp.zeros(3, bool))}
        alive = {"agent": jnp.broadcast_to(~over, (3,))}
        return TimeStep({"agent": seen}, reward, over, jnp.zeros((), bool), alive=alive, each=each)
