"""Agents on a square, as many as a parameter of the episode says, that are paid for standing on places worth having.

A place pays ``PAY`` times its radius at every step, shared by all who stand on it: who comes late does better to go
elsewhere. A curriculum draws how many there are: ``DomainRandomisation((("population", 2, 4),))``.

After the resource occupying game of Zhang et al., 2021 (arXiv:2108.12988), in which agents have inertia and places are
six; numbers are not theirs.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.agents import Group
from thespis.core.keys import fold
from thespis.core.records import Each, EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete, dict_space

RADII = (0.2, 0.25, 0.3, 0.35)
"""Of the places, in half sides of the square."""
PAY = 4.0
_MOVES = ((0.0, 0.0), (1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0))


class Population(eqx.Module):
    """How many agents there are in an episode, at most ``Resources.most``."""

    population: Int[Array, ""]


class Ground(eqx.Module):
    """One episode under way: where agents and places are, in [-1, 1], and how many agents there are."""

    agents: Float[Array, "agent 2"]
    places: Float[Array, "place 2"]
    population: Int[Array, ""]
    time: Int[Array, ""]


class Resources(eqx.Module):
    """One group, ``agent``, of ``most``, of whom the first ``population`` are there.

    They stay (0) or move by ``stride``. Each sees where it is and, relative to itself, the places (``own``); and of
    every other a row (``others``): 1, where it is, on which places it stands; zeros of one who is not there. The reward
    is the mean of what those who are there are paid. Episodes are cut after ``limit`` steps.
    """

    population: int = eqx.field(static=True, default=4)
    most: int = eqx.field(static=True, default=6)
    stride: float = eqx.field(static=True, default=0.2)
    limit: int = eqx.field(static=True, default=20)

    @property
    def spec(self) -> EnvSpec:
        """Spaces, limit and how many there are by default."""
        places = len(RADII)
        seen = dict_space(others=Box((self.most - 1, 3 + places), -2.0, 2.0), own=Box((2 + 2 * places,), -2.0, 2.0))
        spaces = dict_space(agent=seen), dict_space(agent=Discrete(len(_MOVES)))
        params = Population(jnp.int32(self.population))
        return EnvSpec("resources", *spaces, time_limit=self.limit, groups=(Group("agent", self.most),), params=params)

    def reset(self, params: Population, key: Key[Array, ""]) -> tuple[Ground, TimeStep]:
        """All anywhere."""
        agents = jax.random.uniform(fold(key, "agents"), (self.most, 2), minval=-1.0)
        places = jax.random.uniform(fold(key, "places"), (len(RADII), 2), minval=-1.0)
        ground = Ground(agents, places, params.population, jnp.int32(0))
        return ground, self._answer(ground, jnp.zeros(self.most))

    def step(
        self, state: Ground, action: dict[str, Int[Array, " agent"]], key: Key[Array, ""]
    ) -> tuple[Ground, TimeStep]:
        """All move, then all are paid for where they stand."""
        moved = state.agents + self.stride * jnp.asarray(_MOVES)[action["agent"]]
        ground = Ground(jnp.clip(moved, -1.0, 1.0), state.places, state.population, state.time + 1)
        return ground, self._answer(ground, self.paid(ground))

    def there(self, ground: Ground) -> Bool[Array, " agent"]:
        """Who is there."""
        return jnp.arange(self.most) < ground.population

    def stands(self, ground: Ground) -> Bool[Array, "agent place"]:
        """Who stands on what; nobody who is not there."""
        apart = jnp.sum((ground.agents[:, None] - ground.places[None]) ** 2, axis=-1)
        return (apart <= jnp.asarray(RADII) ** 2) & self.there(ground)[:, None]

    def paid(self, ground: Ground) -> Float[Array, " agent"]:
        """What each is paid."""
        stands = self.stands(ground)
        share = PAY * jnp.asarray(RADII) / jnp.maximum(jnp.sum(stands, axis=0), 1)
        return jnp.sum(stands * share, axis=1)

    def _seen(self, ground: Ground) -> dict[str, Array]:
        there = self.there(ground)
        own = jnp.concatenate([ground.agents, (ground.places[None] - ground.agents[:, None]).reshape(self.most, -1)], 1)
        apart = ground.agents[None] - ground.agents[:, None]
        one = jnp.ones((self.most, self.most, 1))
        stands = jnp.broadcast_to(self.stands(ground)[None], (self.most, self.most, len(RADII)))
        rows = jnp.concatenate([one, apart, stands.astype("float32")], axis=-1) * (there[:, None] & there)[..., None]
        others = jnp.stack([jnp.delete(rows[i], i, axis=0) for i in range(self.most)])
        return {"others": others, "own": own * there[:, None]}

    def _answer(self, ground: Ground, paid: Float[Array, " agent"]) -> TimeStep:
        there, no = self.there(ground), jnp.zeros(self.most, bool)
        each, mean = {"agent": Each(paid, no)}, jnp.sum(paid) / jnp.maximum(jnp.sum(there), 1)
        cut = ground.time >= self.limit
        return TimeStep({"agent": self._seen(ground)}, mean, no[0], cut, alive={"agent": there}, each=each)
