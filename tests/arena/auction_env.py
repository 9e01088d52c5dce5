"""A multi-agent environment with known outcomes, and players with known actions."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from thespis.core.records import AgentOutcome, EnvSpec, TimeStep
from thespis.core.spaces import AgentGroup, Box, Discrete, dict_space

GROUPS = (AgentGroup("left", 1), AgentGroup("right", 2))
ACTIONS = 9


class Auction(eqx.Module):
    """Three agents in two groups bid at the same time; each wins its own bid. The episode ends at a random step."""

    last: int = eqx.field(static=True, default=5)
    shared: bool = eqx.field(static=True, default=False)

    @property
    def spec(self) -> EnvSpec:
        observations = dict_space(left=Box((1,)), right=Box((1,)))
        bids = dict_space(left=Discrete(ACTIONS), right=Discrete(ACTIONS))
        return EnvSpec("auction", observations, bids, time_limit=self.last, groups=GROUPS)

    def reset(self, params, key):
        closes = jax.random.randint(key, (), 1, self.last + 1)
        return (jnp.zeros((), "int32"), closes), self._step(jnp.zeros((), "int32"), closes, None)

    def step(self, state, action, key):
        tick, closes = state[0] + 1, state[1]
        return (tick, closes), self._step(tick, closes, action)

    def _step(self, tick, closes, bids):
        observations = {g.name: jnp.full((g.num_agents, 1), tick, "float32") for g in GROUPS}
        rewards = {g.name: jnp.zeros(g.num_agents) if bids is None else bids[g.name].astype("float32") for g in GROUPS}
        if self.shared:
            total = rewards["left"].sum() + rewards["right"].sum()
            rewards = {g.name: jnp.full(g.num_agents, total) for g in GROUPS}
        is_over = tick >= closes
        outcomes = {
            name: AgentOutcome(reward, jnp.broadcast_to(is_over, reward.shape)) for name, reward in rewards.items()
        }
        alive = {g.name: jnp.ones(g.num_agents, bool) for g in GROUPS}
        return TimeStep(
            observations, rewards["left"][0], is_over, jnp.zeros((), bool), alive=alive, agent_outcomes=outcomes
        )


class Bids(eqx.Module):
    """Bids its number, plus the index of the agent in its group, plus the number of steps in its memory."""

    number: int = eqx.field(static=True)

    def init_memory(self, n):
        return jnp.zeros(n, "int32")

    def act(self, memory, view, key):
        bids = {g.name: self.number + memory[:, None] + jnp.arange(g.num_agents) for g in GROUPS}
        return {name: bid.astype("int32") for name, bid in bids.items()}, memory + 1


def low(spec):
    """A player built from the environment's spec."""
    assert spec.groups == GROUPS
    return Bids(0)


HIGH = Bids(3)
NOBODY = 7
