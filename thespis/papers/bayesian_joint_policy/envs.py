"""Small cooperative games in which agents have to choose alike: the climbing game and a repeated coordination game."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.records import AgentOutcome, EnvSpec, TimeStep
from thespis.core.spaces import AgentGroup, Box, Discrete, dict_space

PAYOFF_MATRIX = ((11.0, -30.0, 0.0), (-30.0, 7.0, 6.0), (0.0, 0.0, 5.0))
"""Payoffs of Claus and Boutilier, 1998: rows are the first player's actions, columns the second player's."""


class ClimbingGame(eqx.Module):
    """One-step climbing game of three agents: two of them play it, the third one's action has no effect.

    The reward is shared. All agents observe which one is left out, one-hot; each is left out with equal probability.
    The first of the other two, in their order, chooses the row.
    """

    @property
    def spec(self) -> EnvSpec:
        """Specification of the environment: its spaces and its time limit."""
        observations, actions = dict_space(agent=Box((3,), 0.0, 1.0)), dict_space(agent=Discrete(3))
        return EnvSpec("climbing", observations, actions, groups=(AgentGroup("agent", 3),))

    def optimal_return(self) -> float:
        """Return of the best joint action."""
        return float(np.max(PAYOFF_MATRIX))

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Int[Array, ""], TimeStep]:
        """Draws the agent that is left out."""
        left_out = jax.random.randint(key, (), 0, 3, "int32")
        return left_out, self._time_step(left_out, jnp.zeros(()), jnp.zeros((), bool))

    def step(
        self, state: Int[Array, ""], action: dict[str, Int[Array, " agent"]], key: Key[Array, ""]
    ) -> tuple[Int[Array, ""], TimeStep]:
        """Pays the joint action and ends the episode."""
        row, column = (action["agent"][jnp.array(players)[state]] for players in ((1, 0, 0), (2, 2, 1)))
        return state, self._time_step(state, jnp.array(PAYOFF_MATRIX)[row, column], jnp.ones((), bool))

    def _time_step(self, out: Int[Array, ""], reward: Float[Array, ""], over: Array) -> TimeStep:
        observation = jnp.broadcast_to(jax.nn.one_hot(out, 3), (3, 3))
        outcomes = {"agent": AgentOutcome(jnp.broadcast_to(reward, (3,)), jnp.zeros(3, bool))}
        alive = {"agent": jnp.broadcast_to(~over, (3,))}
        return TimeStep({"agent": observation}, reward, over, jnp.zeros((), bool), alive=alive, agent_outcomes=outcomes)


class CoordinationState(eqx.Module):
    """State of one episode: a bit for each agent, and the number of steps taken."""

    bits: Int[Array, " agent"]
    time: Int[Array, ""]


class CoordinationGame(eqx.Module):
    """Repeated coordination game: agents set one bit each, and are paid where nearly all bits are equal.

    The state has one bit for each agent, which all observe. An agent's action sets its own bit, which comes out wrong
    with probability ``flip_prob``. The shared reward of the new state is 3 where zeros outnumber ones by more than
    ``tolerance``, 2 where ones outnumber zeros by more than that, else 1 for a majority of ones, and 0. An agent alone
    cannot go from the second best equilibrium, all ones, to the best one, all zeros. The first state is uniform.

    Source: the coordination game of Chen and Zhang, 2023, and their code.
    """

    num_agents: int = eqx.field(static=True, default=3)
    tolerance: int = eqx.field(static=True, default=1)
    flip_prob: float = eqx.field(static=True, default=0.1)
    time_limit: int = eqx.field(static=True, default=25)

    @property
    def spec(self) -> EnvSpec:
        """Specification of the environment: its spaces and its time limit."""
        observations = dict_space(agent=Box((self.num_agents,), 0.0, 1.0))
        return EnvSpec(
            "coordination",
            observations,
            dict_space(agent=Discrete(2)),
            time_limit=self.time_limit,
            groups=(AgentGroup("agent", self.num_agents),),
        )

    def payoff(self, num_ones: Int[Array, "*rest"]) -> Float[Array, "*rest"]:
        """Reward of a state with so many bits that are 1."""
        margin = 2 * num_ones - self.num_agents
        mixed = jnp.where(margin > 0, 1.0, 0.0)
        return jnp.where(jnp.abs(margin) <= self.tolerance, mixed, jnp.where(margin < 0, 3.0, 2.0))

    def optimal_return(self) -> float:
        """Exact expected return of the best joint action, which is the same in all states.

        The numbers of ones of the next state, for each number of agents that choose 1, are sums of two binomials.
        """
        payoffs = np.asarray(self.payoff(jnp.arange(self.num_agents + 1)))

        def distribution(num_choosing_one: int) -> np.ndarray:
            probs = np.ones(1)
            for agent in range(self.num_agents):
                prob_of_one = 1 - self.flip_prob if agent < num_choosing_one else self.flip_prob
                probs = np.convolve(probs, [1 - prob_of_one, prob_of_one])
            return probs

        return self.time_limit * max(float(distribution(n) @ payoffs) for n in range(self.num_agents + 1))

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[CoordinationState, TimeStep]:
        """Draws all bits uniformly."""
        bits = jax.random.randint(key, (self.num_agents,), 0, 2, "int32")
        state = CoordinationState(bits, jnp.zeros((), "int32"))
        return state, self._time_step(state, jnp.zeros(()))

    def step(
        self, state: CoordinationState, action: dict[str, Int[Array, " agent"]], key: Key[Array, ""]
    ) -> tuple[CoordinationState, TimeStep]:
        """Sets all bits, and pays the new state."""
        flipped = jax.random.bernoulli(key, self.flip_prob, (self.num_agents,))
        bits = jnp.where(flipped, 1 - action["agent"], action["agent"]).astype("int32")
        after = CoordinationState(bits, state.time + 1)
        return after, self._time_step(after, self.payoff(bits.sum()))

    def _time_step(self, state: CoordinationState, reward: Float[Array, ""]) -> TimeStep:
        count = self.num_agents
        observation = jnp.broadcast_to(state.bits.astype("float32"), (count, count))
        outcomes = {"agent": AgentOutcome(jnp.broadcast_to(reward, (count,)), jnp.zeros(count, bool))}
        return TimeStep(
            {"agent": observation},
            reward,
            jnp.zeros((), bool),
            state.time >= self.time_limit,
            alive={"agent": jnp.ones(count, bool)},
            agent_outcomes=outcomes,
        )
