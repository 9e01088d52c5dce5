"""A cooperative stochastic game drawn by chance, so small that the joint return of any policies is known exactly."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.agents import Group
from thespis.core.records import Each, EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete, dict_space


class Position(eqx.Module):
    """Where one episode stands."""

    state: Int[Array, ""]
    time: Int[Array, ""]


class Tables(eqx.Module):
    """What every joint choice pays, and where it leads; the first agent's choice is the most significant digit."""

    reward: Float[Array, "state joint"]
    chance: Float[Array, "state joint state"]


class StochasticGame(eqx.Module):
    """``agents`` see the state, one-hot, and choose at once; all are paid alike, ``limit`` times.

    Rewards are uniform in [0, 1] for every state and joint choice, so that what is best for one hangs on all others;
    chances of the next state are drawn from a Dirichlet distribution of concentration 0.2, so that few are likely. The
    first state is any. ``game`` numbers the draws.
    """

    game: int = eqx.field(static=True, default=0)
    agents: int = eqx.field(static=True, default=3)
    choices: int = eqx.field(static=True, default=4)
    states: int = eqx.field(static=True, default=6)
    limit: int = eqx.field(static=True, default=20)

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits."""
        seen, done = dict_space(agent=Box((self.states,), 0.0, 1.0)), dict_space(agent=Discrete(self.choices))
        name = f"stochastic-game-{self.game}"
        return EnvSpec(name, seen, done, time_limit=self.limit, groups=(Group("agent", self.agents),))

    def tables(self) -> Tables:
        """The game. It is drawn outside of any program, in which it is a constant."""
        reward, chance = _drawn(self.game, self.states, self.choices**self.agents)
        return Tables(jnp.asarray(reward), jnp.asarray(chance))

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Position, TimeStep]:
        """Any state."""
        position = Position(jax.random.randint(key, (), 0, self.states), jnp.zeros((), "int32"))
        return position, self._answer(position, jnp.zeros(()))

    def step(
        self, state: Position, action: dict[str, Int[Array, " agent"]], key: Key[Array, ""]
    ) -> tuple[Position, TimeStep]:
        """One joint choice."""
        tables, digits = self.tables(), self.choices ** jnp.arange(self.agents - 1, -1, -1)
        joint = jnp.sum(action["agent"] * digits)
        following = jax.random.categorical(key, jnp.log(tables.chance[state.state, joint])).astype("int32")
        position = Position(following, state.time + 1)
        return position, self._answer(position, tables.reward[state.state, joint])

    def _answer(self, position: Position, reward: Float[Array, ""]) -> TimeStep:
        seen = jnp.broadcast_to(jax.nn.one_hot(position.state, self.states), (self.agents, self.states))
        over: Bool[Array, ""] = position.time >= self.limit
        nobody, all_of_them = jnp.zeros(self.agents, bool), jnp.ones(self.agents, bool)
        each = {"agent": Each(jnp.broadcast_to(reward, (self.agents,)), nobody)}
        return TimeStep({"agent": seen}, reward, jnp.zeros((), bool), over, alive={"agent": all_of_them}, each=each)

    def worth(self, policies: Float[Array, "agent state choice"]) -> Float[Array, ""]:
        """The exact mean return of an episode in which each agent chooses by its own probabilities."""
        tables = self.tables()
        joint = functools.reduce(lambda a, b: (a[:, :, None] * b[:, None]).reshape(self.states, -1), policies)
        paid, moves = jnp.sum(joint * tables.reward, -1), jnp.einsum("sj,sjt->st", joint, tables.chance)
        worth = jax.lax.fori_loop(0, self.limit, lambda _, v: paid + moves @ v, jnp.zeros(self.states))
        return jnp.mean(worth)

    def best(self) -> Float[Array, ""]:
        """The exact mean return of the best joint choices, by dynamic programming backwards from the end."""
        tables = self.tables()
        backwards = lambda _, v: jnp.max(tables.reward + tables.chance @ v, axis=-1)  # noqa: E731
        return jnp.mean(jax.lax.fori_loop(0, self.limit, backwards, jnp.zeros(self.states)))


@functools.cache
def _drawn(game: int, states: int, joint: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(game)
    reward, chance = draw.uniform(size=(states, joint)), draw.dirichlet(np.full(states, 0.2), (states, joint))
    return reward.astype("float32"), chance.astype("float32")


SECOND, THIRD = StochasticGame(game=1), StochasticGame(game=2)
"""Two more."""
