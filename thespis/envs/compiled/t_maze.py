"""A T-maze: what is seen where it begins tells which way to turn at its end, a corridor's length later.

Who turns rightly is paid 4, who turns wrongly -0.1, and either ends the episode; walking into a wall costs 0.1. With
memory the best return is 4, after ``length + 1`` steps; without, half of it is luck: 1.95.

Source: Bakker, 2001, "Reinforcement learning with long short-term memory"; what is seen is as there: 011 or 110 at the
beginning, 101 in the corridor, 010 where it ends. With ``noise`` the corridor shows a0b, with a and b drawn anew from
[0, 1] at each step, so that what is remembered has to be kept from what is seen later.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete

NORTH, EAST, SOUTH, WEST = range(4)
RIGHT, WRONG = 4.0, -0.1


class Walker(eqx.Module):
    """One episode under way: steps east of the beginning, steps taken, and whether the reward is in the north."""

    place: Int[Array, ""]
    time: Int[Array, ""]
    north: Bool[Array, ""]


class TMaze(eqx.Module):
    """A corridor of ``length`` steps from its beginning to the turn; episodes are cut after ``limit`` steps."""

    length: int = eqx.field(static=True, default=10)
    limit: int = eqx.field(static=True, default=100)
    noise: bool = eqx.field(static=True, default=False)

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limit."""
        return EnvSpec("t-maze", Box((3,), 0.0, 1.0), Discrete(4), time_limit=self.limit)

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[Walker, TimeStep]:
        """Where the corridor begins; the reward is in the north or in the south, as likely either way."""
        zero, no = jnp.zeros((), "int32"), jnp.zeros((), bool)
        state = Walker(zero, zero, jax.random.bernoulli(key))
        return state, TimeStep(self._seen(state, key), jnp.zeros(()), no, no)

    def step(self, state: Walker, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[Walker, TimeStep]:
        """A step, if no wall is in the way; at the end of the corridor, a turn."""
        at_end, across = state.place == self.length, (action == NORTH) | (action == SOUTH)
        turned = at_end & across
        moved = jnp.where(action == EAST, 1, jnp.where(action == WEST, -1, 0))
        place = jnp.clip(state.place + moved, 0, self.length)
        blocked = (place == state.place) & ~turned
        paid = jnp.where(turned & ((action == NORTH) == state.north), RIGHT, jnp.where(turned | blocked, WRONG, 0.0))
        state = Walker(place, state.time + 1, state.north)
        return state, TimeStep(self._seen(state, key), paid, turned, (state.time >= self.limit) & ~turned)

    def _seen(self, state: Walker, key: Key[Array, ""]) -> Float[Array, "3"]:
        start = jnp.where(state.north, jnp.array([0.0, 1.0, 1.0]), jnp.array([1.0, 1.0, 0.0]))
        sides = jax.random.uniform(key, (2,)) if self.noise else jnp.ones(2)
        corridor = jnp.array([sides[0], 0.0, sides[1]])
        end = jnp.array([0.0, 1.0, 0.0])
        return jnp.where(state.place == 0, start, jnp.where(state.place == self.length, end, corridor))


NOISY = TMaze(20, limit=100, noise=True)
"""A corridor of 20 noisy steps."""
LONGEST = TMaze(70, limit=350, noise=True)
"""A corridor of 70 noisy steps, the longest of the source."""
