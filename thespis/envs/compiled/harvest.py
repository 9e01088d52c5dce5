"""Harvest: a row of fields that a team must harvest from both ends at once; most actions are equivalent.

Agents stand in a row of ``num_cells`` cells. At its left end grows one kind of fruit, at its right end another, each
picked with its own kind of tool; there are ``num_tool_variants`` equivalent tools of either kind. The team's reward is
the number of pairs picked in one step, one fruit of either kind, so half of the agents should go either way. All start
in the middle. A random policy rarely reaches an end, because few actions are moves.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.core.records import AgentOutcome, EnvSpec, TimeStep
from thespis.core.spaces import AgentGroup, Box, Discrete, dict_space

GROUP = "pickers"


class HarvestState(eqx.Module):
    """State of one episode: agents' cells, and the tool in hand (0: none, 1: left kind, 2: right kind)."""

    positions: Int[Array, " agent"]
    tools: Int[Array, " agent"]
    time: Int[Array, ""]


class Harvest(eqx.Module):
    """Harvest environment: a team in a row of cells harvests fruit from both ends at once.

    The actions are stay, left, right, then the tools of the left kind, then those of the right kind. Each agent
    observes all agents' cells and tools in hand, one-hot, its own first; critics observe them in fixed order. Episodes
    are truncated after ``time_limit`` steps.
    """

    num_agents: int = eqx.field(static=True, default=2)
    num_cells: int = eqx.field(static=True, default=7)
    num_tool_variants: int = eqx.field(static=True, default=6)
    time_limit: int = eqx.field(static=True, default=15)

    @property
    def num_actions(self) -> int:
        """Number of actions of each agent."""
        return 3 + 2 * self.num_tool_variants

    @property
    def spec(self) -> EnvSpec:
        """Specification of the environment: its spaces and its time limit."""
        observation_space = Box((self.num_agents * (self.num_cells + 3),), 0.0, 1.0)
        spaces = dict_space(pickers=observation_space), dict_space(pickers=Discrete(self.num_actions))
        groups = (AgentGroup(GROUP, self.num_agents),)
        return EnvSpec(
            "harvest", *spaces, time_limit=self.time_limit, privileged_space=observation_space, groups=groups
        )

    def optimal_return(self) -> float:
        """Best return of an even number of agents in a row of odd length, from the start in the middle."""
        return float(self.num_agents // 2 * (self.time_limit - self.num_cells // 2))

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[HarvestState, TimeStep]:
        """Starts all agents in the middle, without tools."""
        zeros = jnp.zeros(self.num_agents, "int32")
        state = HarvestState(zeros + self.num_cells // 2, zeros, jnp.zeros((), "int32"))
        return state, self._time_step(state, jnp.zeros(()))

    def step(
        self, state: HarvestState, action: dict[str, Int[Array, " agent"]], key: Key[Array, ""]
    ) -> tuple[HarvestState, TimeStep]:
        """Agents move or pick; only agents at the right end with the right kind of tool pick anything."""
        actions = action[GROUP]
        walk = jnp.where(actions == 2, 1, jnp.where(actions == 1, -1, 0))
        tool = jnp.where(actions < 3, 0, 1 + (actions - 3) // self.num_tool_variants)
        left, right = (tool == 1) & (state.positions == 0), (tool == 2) & (state.positions == self.num_cells - 1)
        pairs = jnp.minimum(left.sum(), right.sum()).astype("float32")
        state = HarvestState(jnp.clip(state.positions + walk, 0, self.num_cells - 1), tool, state.time + 1)
        return state, self._time_step(state, pairs)

    def _time_step(self, state: HarvestState, paid: Float[Array, ""]) -> TimeStep:
        features = jnp.concatenate(
            [jax.nn.one_hot(state.positions, self.num_cells), jax.nn.one_hot(state.tools, 3)], axis=1
        )
        observation = jnp.stack([jnp.roll(features, -i, axis=0).ravel() for i in range(self.num_agents)])
        outcome = AgentOutcome(jnp.broadcast_to(paid, (self.num_agents,)), jnp.zeros(self.num_agents, bool))
        alive, no = jnp.ones(self.num_agents, bool), jnp.zeros((), bool)
        return TimeStep(
            {GROUP: observation},
            paid,
            no,
            state.time >= self.time_limit,
            None,
            features.ravel(),
            {GROUP: alive},
            agent_outcomes={GROUP: outcome},
        )


MANY_TOOLS_HARVEST = Harvest(num_cells=5, num_tool_variants=16)
"""Two agents and 35 actions, two of which are moves."""

LARGE_TOOLBOX_HARVEST = Harvest(num_cells=5, num_tool_variants=32)
"""Two agents and 67 actions, two of which are moves; their best return is 13."""

FOUR_AGENT_HARVEST = Harvest(num_agents=4, num_cells=5, num_tool_variants=4)
"""Four agents, two of which should go either way; their best return is 26."""
