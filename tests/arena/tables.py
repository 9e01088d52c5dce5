"""A world of many agents and players of it, small enough to know what must come."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from thespis.core.agents import Group
from thespis.core.records import Each, EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete, dict_space

GROUPS = (Group("left", 1), Group("right", 2))
ACTIONS = 9


class Auction(eqx.Module):
    """Three agents in two groups bid together; everybody wins its own bid, until the house closes by lot."""

    last: int = eqx.field(static=True, default=5)
    shared: bool = eqx.field(static=True, default=False)

    @property
    def spec(self) -> EnvSpec:
        seen = dict_space(left=Box((1,)), right=Box((1,)))
        bids = dict_space(left=Discrete(ACTIONS), right=Discrete(ACTIONS))
        return EnvSpec("auction", seen, bids, time_limit=self.last, groups=GROUPS)

    def reset(self, params, key):
        closes = jax.random.randint(key, (), 1, self.last + 1)
        return (jnp.zeros((), "int32"), closes), self._step(jnp.zeros((), "int32"), closes, None)

    def step(self, state, action, key):
        tick, closes = state[0] + 1, state[1]
        return (tick, closes), self._step(tick, closes, action)

    def _step(self, tick, closes, bids):
        seen = {g.name: jnp.full((g.count, 1), tick, "float32") for g in GROUPS}
        won = {g.name: jnp.zeros(g.count) if bids is None else bids[g.name].astype("float32") for g in GROUPS}
        if self.shared:
            total = won["left"].sum() + won["right"].sum()
            won = {g.name: jnp.full(g.count, total) for g in GROUPS}
        over = tick >= closes
        each = {name: Each(reward, jnp.broadcast_to(over, reward.shape)) for name, reward in won.items()}
        alive = {g.name: jnp.ones(g.count, bool) for g in GROUPS}
        return TimeStep(seen, won["left"][0], over, jnp.zeros((), bool), alive=alive, each=each)


class Bids(eqx.Module):
    """Always bids its number, one more in each later seat of a group, and one more at each step that it remembers."""

    number: int = eqx.field(static=True)

    def begin(self, n):
        return jnp.zeros(n, "int32")

    def act(self, memory, view, key):
        bids = {g.name: self.number + memory[:, None] + jnp.arange(g.count) for g in GROUPS}
        return {name: bid.astype("int32") for name, bid in bids.items()}, memory + 1


def low(spec):
    """A player that is made for a world."""
    assert spec.groups == GROUPS
    return Bids(0)


HIGH = Bids(3)
NOBODY = 7
