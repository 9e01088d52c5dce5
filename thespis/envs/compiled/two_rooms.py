"""Two rooms with a door that stays open only while somebody stands on a switch: nobody gets through alone.

There is a switch in either room. All begin in the near room, anywhere in it. One holds the near switch while another
goes through the door and on to the far switch, which lets the first one in; the team is paid 1, once, when all are in
the far room. Nothing is paid on the way, and who walks about at random rarely gets there.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.agents import Group
from thespis.core.records import Each, EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete, dict_space

GROUP = "walkers"
MOVES = ((0, 0), (0, -1), (0, 1), (-1, 0), (1, 0))
"""Stay, left, right, up, down, as steps over rows and columns."""
MARKS = (-2, -1)
"""Where an agent's observation says that it stands on the near switch, and on the far one."""


class Rooms(eqx.Module):
    """One episode under way: row and column of everyone."""

    place: Int[Array, "agent 2"]
    time: Int[Array, ""]


class TwoRooms(eqx.Module):
    """Rooms of ``side`` rows and columns, and between them a wall with a door in its middle row.

    Each agent sees everyone's cell, one-hot, itself first, and whether it stands on the near switch or on the far
    one: these are in the upper corners, away from the door. Agents may share a cell. Episodes are cut after ``limit``
    steps.
    """

    agents: int = eqx.field(static=True, default=2)
    side: int = eqx.field(static=True, default=3)
    limit: int = eqx.field(static=True, default=40)

    @property
    def columns(self) -> int:
        """Of both rooms and the wall."""
        return 2 * self.side + 1

    @property
    def switches(self) -> Int[Array, "2 2"]:
        """Row and column of the near switch and of the far one."""
        return jnp.array([(0, 0), (0, self.columns - 1)], "int32")

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits."""
        places = self.agents * self.side * self.columns
        seen = Box((places + len(MARKS),), 0.0, 1.0)
        spaces = dict_space(walkers=seen), dict_space(walkers=Discrete(len(MOVES)))
        groups, told = (Group(GROUP, self.agents),), Box((places,), 0.0, 1.0)
        return EnvSpec("two-rooms", *spaces, time_limit=self.limit, privileged=told, groups=groups)

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[Rooms, TimeStep]:
        """Everyone somewhere in the near room."""
        state = Rooms(jax.random.randint(key, (self.agents, 2), 0, self.side, "int32"), jnp.zeros((), "int32"))
        return state, self._answer(state, jnp.zeros((), bool))

    def step(
        self, state: Rooms, action: dict[str, Int[Array, " agent"]], key: Key[Array, ""]
    ) -> tuple[Rooms, TimeStep]:
        """All move at once, through the door if somebody stood on a switch before."""
        opened = jnp.any(self._on(state.place))
        wanted = state.place + jnp.array(MOVES, "int32")[action[GROUP]]
        wanted = jnp.clip(wanted, 0, jnp.array([self.side - 1, self.columns - 1]))
        row, column = wanted[:, 0], wanted[:, 1]
        barred = (column == self.side) & ~((row == self.side // 2) & opened)
        waits = jnp.all(wanted == state.place, axis=1)
        state = Rooms(jnp.where((barred & ~waits)[:, None], state.place, wanted), state.time + 1)
        through = jnp.all(state.place[:, 1] > self.side)
        return state, self._answer(state, through)

    def _on(self, place: Int[Array, "agent 2"]) -> Bool[Array, "agent 2"]:
        return jnp.all(place[:, None] == self.switches, axis=-1)

    def _answer(self, state: Rooms, through: Bool[Array, ""]) -> TimeStep:
        cells = jax.nn.one_hot(state.place @ jnp.array([self.columns, 1]), self.side * self.columns)
        all_cells = jnp.stack([jnp.roll(cells, -i, axis=0).ravel() for i in range(self.agents)])
        seen = jnp.concatenate([all_cells, self._on(state.place).astype("float32")], axis=1)
        paid: Float[Array, ""] = through.astype("float32")
        each = Each(jnp.broadcast_to(paid, (self.agents,)), jnp.zeros(self.agents, bool))
        there, cut = jnp.ones(self.agents, bool), (state.time >= self.limit) & ~through
        return TimeStep({GROUP: seen}, paid, through, cut, None, cells.ravel(), {GROUP: there}, each={GROUP: each})


SMALL = TwoRooms(side=2, limit=24)
"""Rooms of four cells: of a thousand episodes of random steps six end well."""
