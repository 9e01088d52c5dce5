"""Climbing game with three agents, one of which is left out: a cooperative game with penalties for miscoordination."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
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
