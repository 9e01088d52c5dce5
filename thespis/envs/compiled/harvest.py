"""A row of fields that is harvested from both ends at once: a team must split up, and most actions do the same.

Agents stand in a row of ``cells``. At its left end grows one kind of fruit, at its right end another, each picked with
a kind of tool of its own; there are ``variants`` tools of either kind, which do not differ. What the team is paid is
the number of pairs picked in one step, one fruit of either kind, so that half of the agents should go either way. All
begin in the middle. Whoever walks about without thinking rarely gets anywhere, for few actions are steps.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.core.agents import Group
from thespis.core.records import Each, EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete, dict_space

GROUP = "pickers"


class Row(eqx.Module):
    """One episode under way: where everyone is, and the tool in hand (0: none, 1: left kind, 2: right kind)."""

    place: Int[Array, " agent"]
    tool: Int[Array, " agent"]
    time: Int[Array, ""]


class Harvest(eqx.Module):
    """Actions: stay, left, right, then the tools of the left kind, then those of the right kind.

    Each agent sees everyone's place and tool in hand, one-hot, itself first; critics see them in one order. Episodes
    are cut after ``limit`` steps. The best return of an even number of agents is ``limit - cells // 2`` for each pair.
    """

    agents: int = eqx.field(static=True, default=2)
    cells: int = eqx.field(static=True, default=7)
    variants: int = eqx.field(static=True, default=6)
    limit: int = eqx.field(static=True, default=15)

    @property
    def actions(self) -> int:
        """Choices of each agent."""
        return 3 + 2 * self.variants

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits."""
        seen = Box((self.agents * (self.cells + 3),), 0.0, 1.0)
        spaces = dict_space(pickers=seen), dict_space(pickers=Discrete(self.actions))
        groups = (Group(GROUP, self.agents),)
        return EnvSpec("harvest", *spaces, time_limit=self.limit, privileged=seen, groups=groups)

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[Row, TimeStep]:
        """All in the middle with empty hands."""
        none = jnp.zeros(self.agents, "int32")
        state = Row(none + self.cells // 2, none, jnp.zeros((), "int32"))
        return state, self._answer(state, jnp.zeros(()))

    def step(self, state: Row, action: dict[str, Int[Array, " agent"]], key: Key[Array, ""]) -> tuple[Row, TimeStep]:
        """Everyone walks or picks; only those who stand at the right end with the right kind of tool pick anything."""
        done = action[GROUP]
        walk = jnp.where(done == 2, 1, jnp.where(done == 1, -1, 0))
        tool = jnp.where(done < 3, 0, 1 + (done - 3) // self.variants)
        left, right = (tool == 1) & (state.place == 0), (tool == 2) & (state.place == self.cells - 1)
        pairs = jnp.minimum(left.sum(), right.sum()).astype("float32")
        state = Row(jnp.clip(state.place + walk, 0, self.cells - 1), tool, state.time + 1)
        return state, self._answer(state, pairs)

    def _answer(self, state: Row, paid: Float[Array, ""]) -> TimeStep:
        one = jnp.concatenate([jax.nn.one_hot(state.place, self.cells), jax.nn.one_hot(state.tool, 3)], axis=1)
        seen = jnp.stack([jnp.roll(one, -i, axis=0).ravel() for i in range(self.agents)])
        each = Each(jnp.broadcast_to(paid, (self.agents,)), jnp.zeros(self.agents, bool))
        there, no = jnp.ones(self.agents, bool), jnp.zeros((), bool)
        return TimeStep(
            {GROUP: seen}, paid, no, state.time >= self.limit, None, one.ravel(), {GROUP: there}, each={GROUP: each}
        )


MANY_TOOLS = Harvest(cells=5, variants=16)
"""Two agents and 35 actions, of which two are steps."""

FOUR = Harvest(agents=4, cells=5, variants=4)
"""Four agents, two of whom should go either way; at best they are paid 26."""
