"""Many who learn one game, each at a table of its own: one seat is the agent's, the others are kept by opponents.

Nobody at one table knows of the others. All games begin together; an agent whose game is over is absent until the last
one is, and with it the episode.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, PyTree

from thespis.core.agents import Group
from thespis.core.keys import per_index
from thespis.core.records import Each, EnvSpec, TimeStep
from thespis.core.spaces import dict_space
from thespis.envs.games.versus import Opponents, Table, Versus

LEARNERS = "league"


class Hall(eqx.Module):
    """Games under way ``[agent]``, and which of them are over."""

    tables: Table
    over: Bool[Array, "*agent"]


class Tables(eqx.Module):
    """``count`` agents, each of which plays as in ``table``. What the episode counts for is what the first one won."""

    table: Versus
    count: int = eqx.field(static=True)

    @property
    def spec(self) -> EnvSpec:
        """One group of agents; parameters are the opponents of each, ``[agent]``."""
        one = self.table.spec
        return EnvSpec(
            name=one.name,
            observation=dict_space(**{LEARNERS: one.observation}),
            action=dict_space(**{LEARNERS: one.action}),
            legal=True,
            time_limit=one.time_limit,
            params=jax.tree.map(lambda x: jnp.broadcast_to(x, (self.count, *jnp.shape(x))), one.params),
            groups=(Group(LEARNERS, self.count),),
        )

    def reset(self, params: Opponents, key: Key[Array, ""]) -> tuple[Hall, TimeStep]:
        """Fresh games, each played on until it is the agent's turn."""
        tables, begun = jax.vmap(self.table.reset)(params, per_index(key, self.count))
        nobody = jnp.zeros(self.count, bool)
        return Hall(tables, begun.terminated), self._step(begun, nobody, begun.terminated)

    def step(self, state: Hall, action: dict[str, Int[Array, " agent"]], key: Key[Array, ""]) -> tuple[Hall, TimeStep]:
        """Everybody's move, and what it is answered with; games that are over stay as they are."""
        tables, told = jax.vmap(self.table.step)(state.tables, action[LEARNERS], per_index(key, self.count))
        over = state.over | told.terminated
        return Hall(tables, over), self._step(told, state.over, over)

    def _step(self, told: TimeStep, before: Bool[Array, " agent"], over: Bool[Array, " agent"]) -> TimeStep:
        won = jnp.where(before, 0.0, told.reward)
        seen: PyTree = told.observation
        legal: Any = told.legal
        return TimeStep(
            {LEARNERS: seen}, won[0], over.all(), jnp.zeros((), bool), {LEARNERS: legal},
            alive={LEARNERS: ~over}, each={LEARNERS: Each(won, over)},
        )  # fmt: skip
