"""Two rooms: a cooperative grid whose door is open only while an agent stands on a switch, with a sparse reward.

There is a switch in either room. All agents start in the near room, at random cells. One agent holds the near switch
while another goes through the door and on to the far switch, which lets the first one in. The team is rewarded with 1,
once, when all are in the far room. There is no other reward, and a random policy rarely earns it.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.records import AgentOutcome, EnvSpec, TimeStep
from thespis.core.spaces import AgentGroup, Box, Discrete, dict_space

GROUP = "walkers"
MOVES = ((0, 0), (0, -1), (0, 1), (-1, 0), (1, 0))
"""Stay, left, right, up, down, as steps over rows and columns."""
SWITCH_FEATURES = (-2, -1)
"""Indices of the observation's features for standing on the near switch and on the far switch."""
ROOM_FEATURES = (-3, -2, -1)
"""Those for the near switch, the far switch and the far room, of environments that show the room."""


class TwoRoomsState(eqx.Module):
    """State of one episode: row and column of every agent, and number of steps taken."""

    positions: Int[Array, "agent 2"]
    time: Int[Array, ""]


class TwoRooms(eqx.Module):
    """Two-room environment: a cooperative grid whose door is open only while an agent stands on a switch.

    Rooms have ``room_size`` rows and columns, and between them is a wall with a door in its middle row. Each agent
    observes all agents' cells, one-hot, its own first, and whether it stands on the near or on the far switch. The
    switches are in the upper corners away from the door. Agents may share a cell. Episodes are truncated after
    ``time_limit`` steps.
    """

    num_agents: int = eqx.field(static=True, default=2)
    room_size: int = eqx.field(static=True, default=3)
    time_limit: int = eqx.field(static=True, default=40)
    shows_room: bool = eqx.field(static=True, default=False)
    """Whether an agent's observation ends with a feature for being in the far room: a subgoal that ends the task."""

    @property
    def num_columns(self) -> int:
        """Number of columns of both rooms and the wall."""
        return 2 * self.room_size + 1

    @property
    def switch_positions(self) -> Int[Array, "2 2"]:
        """Row and column of the near switch and of the far switch."""
        return jnp.array([(0, 0), (0, self.num_columns - 1)], "int32")

    @property
    def spec(self) -> EnvSpec:
        """Specification of the environment: its spaces and its time limit."""
        num_cells = self.num_agents * self.room_size * self.num_columns
        num_features = len(ROOM_FEATURES if self.shows_room else SWITCH_FEATURES)
        observation_space = Box((num_cells + num_features,), 0.0, 1.0)
        spaces = dict_space(walkers=observation_space), dict_space(walkers=Discrete(len(MOVES)))
        groups, privileged_space = (AgentGroup(GROUP, self.num_agents),), Box((num_cells,), 0.0, 1.0)
        return EnvSpec(
            "two-rooms", *spaces, time_limit=self.time_limit, privileged_space=privileged_space, groups=groups
        )

    def optimal_return(self) -> float:
        """Return of a team that reaches the far room in time, as it can from every start."""
        return 1.0

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[TwoRoomsState, TimeStep]:
        """Places every agent at random in the near room."""
        state = TwoRoomsState(
            jax.random.randint(key, (self.num_agents, 2), 0, self.room_size, "int32"), jnp.zeros((), "int32")
        )
        return state, self._time_step(state, jnp.zeros((), bool))

    def step(
        self, state: TwoRoomsState, action: dict[str, Int[Array, " agent"]], key: Key[Array, ""]
    ) -> tuple[TwoRoomsState, TimeStep]:
        """All agents move at once; the door is open if an agent stood on a switch before."""
        door_open = jnp.any(self._on_switch(state.positions))
        target = state.positions + jnp.array(MOVES, "int32")[action[GROUP]]
        target = jnp.clip(target, 0, jnp.array([self.room_size - 1, self.num_columns - 1]))
        row, column = target[:, 0], target[:, 1]
        blocked = (column == self.room_size) & ~((row == self.room_size // 2) & door_open)
        stays = jnp.all(target == state.positions, axis=1)
        state = TwoRoomsState(jnp.where((blocked & ~stays)[:, None], state.positions, target), state.time + 1)
        success = jnp.all(state.positions[:, 1] > self.room_size)
        return state, self._time_step(state, success)

    def _on_switch(self, place: Int[Array, "agent 2"]) -> Bool[Array, "agent 2"]:
        return jnp.all(place[:, None] == self.switch_positions, axis=-1)

    def _time_step(self, state: TwoRoomsState, success: Bool[Array, ""]) -> TimeStep:
        cells = jax.nn.one_hot(state.positions @ jnp.array([self.num_columns, 1]), self.room_size * self.num_columns)
        all_cells = jnp.stack([jnp.roll(cells, -i, axis=0).ravel() for i in range(self.num_agents)])
        features = self._on_switch(state.positions).astype("float32")
        if self.shows_room:
            features = jnp.concatenate([features, 1.0 * (state.positions[:, 1:] > self.room_size)], axis=1)
        observation = jnp.concatenate([all_cells, features], axis=1)
        reward: Float[Array, ""] = success.astype("float32")
        outcome = AgentOutcome(jnp.broadcast_to(reward, (self.num_agents,)), jnp.zeros(self.num_agents, bool))
        alive, truncated = jnp.ones(self.num_agents, bool), (state.time >= self.time_limit) & ~success
        return TimeStep(
            {GROUP: observation},
            reward,
            success,
            truncated,
            None,
            cells.ravel(),
            {GROUP: alive},
            agent_outcomes={GROUP: outcome},
        )


SMALL_TWO_ROOMS = TwoRooms(room_size=2, time_limit=24)
"""Rooms of four cells: a random policy succeeds in six episodes of a thousand."""

SMALL_TWO_ROOMS_WITH_SUBGOALS = TwoRooms(room_size=2, time_limit=24, shows_room=True)
"""Rooms of four cells, whose switches and far room can be subgoals."""
