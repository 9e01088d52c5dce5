"""Resource occupation: a variable number of agents on a square, rewarded for standing on valuable places.

A place pays ``REWARD_SCALE`` times its radius at every step to each of the first ``capacity`` agents on it, and what
they get is shared by all agents on it, so late agents do better elsewhere. With a capacity of at least the population
nobody is in anybody's way. A curriculum draws the number of agents: ``DomainRandomization((("population", 2, 4),))``.

After the resource occupying game of Zhang et al., 2021 (arXiv:2108.12988). Differs from the paper: there agents have
inertia, there are six places, and their capacity is 1; numbers are not theirs.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.records import AgentOutcome, EnvSpec, TimeStep
from thespis.core.spaces import AgentGroup, Box, Discrete, dict_space
from thespis.runtime.keys import fold

PLACE_RADII = (0.2, 0.25, 0.3, 0.35)
"""Radii of the places, in half sides of the square."""
REWARD_SCALE = 4.0
_MOVES = ((0.0, 0.0), (1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0))


class ResourceOccupationParams(eqx.Module):
    """Parameters of one episode: the number of agents, at most ``ResourceOccupation.max_agents``."""

    population: Int[Array, ""]


class ResourceOccupationState(eqx.Module):
    """State of one episode: positions of agents and places, in [-1, 1], and the number of agents."""

    agent_positions: Float[Array, "agent 2"]
    place_positions: Float[Array, "place 2"]
    population: Int[Array, ""]
    time: Int[Array, ""]


class ResourceOccupation(eqx.Module):
    """Resource-occupation environment: a variable number of agents is rewarded for standing on valuable places.

    There is one group, ``agent``, of ``max_agents`` agents, of which the first ``population`` are present. Agents stay
    (0) or move by ``step_size``. Each observes its own position and the places relative to it (``own``), and for every
    other agent a row (``others``): 1, its relative position, and the places on which it stands; zeros for absent
    agents. The reward is the mean reward of the agents that are present. Episodes are truncated after ``time_limit``
    steps.
    """

    population: int = eqx.field(static=True, default=4)
    max_agents: int = eqx.field(static=True, default=6)
    step_size: float = eqx.field(static=True, default=0.2)
    time_limit: int = eqx.field(static=True, default=20)
    start_together: bool = eqx.field(static=True, default=False)
    """Whether all agents start in the middle: they observe the same then, and have to part."""
    place_radii: tuple[float, ...] = eqx.field(static=True, default=PLACE_RADII)
    """Radii of the places, in half sides of the square."""
    place_positions: tuple[tuple[float, float], ...] | None = eqx.field(static=True, default=None)
    """Where the places are, ``(x, y)`` for each; ``None``: drawn uniformly for every episode."""
    capacity: int = eqx.field(static=True, default=1)
    """How many agents a place pays in full."""

    @property
    def spec(self) -> EnvSpec:
        """Spaces, limits and the default number of agents."""
        places = len(self.place_radii)
        observation_space = dict_space(
            others=Box((self.max_agents - 1, 3 + places), -2.0, 2.0), own=Box((2 + 2 * places,), -2.0, 2.0)
        )
        spaces = dict_space(agent=observation_space), dict_space(agent=Discrete(len(_MOVES)))
        params = ResourceOccupationParams(jnp.int32(self.population))
        return EnvSpec(
            "resources",
            *spaces,
            time_limit=self.time_limit,
            groups=(AgentGroup("agent", self.max_agents),),
            params=params,
        )

    def reset(self, params: ResourceOccupationParams, key: Key[Array, ""]) -> tuple[ResourceOccupationState, TimeStep]:
        """Draws the agents' positions unless all start in the middle, and the places unless they are given."""
        agents = jax.random.uniform(fold(key, "agents"), (self.max_agents, 2), minval=-1.0)
        agents = jnp.zeros_like(agents) if self.start_together else agents
        state = ResourceOccupationState(agents, self._draw_places(fold(key, "places")), params.population, jnp.int32(0))
        return state, self._time_step(state, jnp.zeros(self.max_agents))

    def step(
        self, state: ResourceOccupationState, action: dict[str, Int[Array, " agent"]], key: Key[Array, ""]
    ) -> tuple[ResourceOccupationState, TimeStep]:
        """All agents move, then each is rewarded for where it stands."""
        moved = state.agent_positions + self.step_size * jnp.asarray(_MOVES)[action["agent"]]
        next_state = ResourceOccupationState(
            jnp.clip(moved, -1.0, 1.0), state.place_positions, state.population, state.time + 1
        )
        return next_state, self._time_step(next_state, self.agent_rewards(next_state))

    def is_present(self, state: ResourceOccupationState) -> Bool[Array, " agent"]:
        """Agents that are present."""
        return jnp.arange(self.max_agents) < state.population

    def place_occupancy(self, state: ResourceOccupationState) -> Bool[Array, "agent place"]:
        """Whether each agent stands on each place; false for absent agents."""
        squared_distances = jnp.sum((state.agent_positions[:, None] - state.place_positions[None]) ** 2, axis=-1)
        return (squared_distances <= jnp.asarray(self.place_radii) ** 2) & self.is_present(state)[:, None]

    def agent_rewards(self, state: ResourceOccupationState) -> Float[Array, " agent"]:
        """Reward of each agent."""
        occupancy = self.place_occupancy(state)
        counts = jnp.sum(occupancy, axis=0)
        share = REWARD_SCALE * jnp.asarray(self.place_radii) * jnp.minimum(self.capacity / jnp.maximum(counts, 1), 1.0)
        return jnp.sum(occupancy * share, axis=1)

    def optimal_return(self) -> float:
        """Mean return of the best joint policy; for agents that start together, and places at ``place_positions``.

        Every agent walks to a place by a shortest way and stays; at most ``capacity`` agents go to one place, as far as
        there are places. For places that do not overlap and pay the population in this way best of all.
        """
        reach = round(2 / self.step_size)
        steps = np.stack(np.meshgrid(*2 * [np.arange(-reach, reach + 1)], indexing="ij"), axis=-1)
        returns = []
        for position, radius in zip(self.place_positions or (), self.place_radii, strict=True):
            on_place = np.hypot(*np.moveaxis(self.step_size * steps - np.asarray(position), -1, 0)) <= radius
            num_moves = max(int(np.abs(steps).sum(axis=-1)[on_place].min()), 1)
            returns += self.capacity * [REWARD_SCALE * radius * max(self.time_limit - num_moves + 1, 0)]
        return sum(sorted(returns, reverse=True)[: self.population]) / self.population

    def _draw_places(self, key: Key[Array, ""]) -> Float[Array, "place 2"]:
        if self.place_positions is not None:
            return jnp.asarray(self.place_positions)
        return jax.random.uniform(key, (len(self.place_radii), 2), minval=-1.0)

    def _observe(self, state: ResourceOccupationState) -> dict[str, Array]:
        present = self.is_present(state)
        own = jnp.concatenate(
            [
                state.agent_positions,
                (state.place_positions[None] - state.agent_positions[:, None]).reshape(self.max_agents, -1),
            ],
            1,
        )
        relative = state.agent_positions[None] - state.agent_positions[:, None]
        ones = jnp.ones((self.max_agents, self.max_agents, 1))
        occupancy = jnp.broadcast_to(
            self.place_occupancy(state)[None], (self.max_agents, self.max_agents, len(self.place_radii))
        )
        rows = (
            jnp.concatenate([ones, relative, occupancy.astype("float32")], axis=-1)
            * (present[:, None] & present)[..., None]
        )
        others = jnp.stack([jnp.delete(rows[i], i, axis=0) for i in range(self.max_agents)])
        return {"others": others, "own": own * present[:, None]}

    def _time_step(self, state: ResourceOccupationState, rewards: Float[Array, " agent"]) -> TimeStep:
        present, no = self.is_present(state), jnp.zeros(self.max_agents, bool)
        outcomes, mean = {"agent": AgentOutcome(rewards, no)}, jnp.sum(rewards) / jnp.maximum(jnp.sum(present), 1)
        truncated = state.time >= self.time_limit
        return TimeStep(
            {"agent": self._observe(state)}, mean, no[0], truncated, alive={"agent": present}, agent_outcomes=outcomes
        )
