r"""A Bayesian network as joint policy: agents of a team choose in turn, told what their parents chose; by PPO.

.. math:: \pi(a | s) = E_{G | s} \prod_i \pi_i(a_i | o_i, a_{pa_G(i)})

A net draws the graph anew at every step, from what all see, and learns with the actors (:mod:`thespis.actors.graphs`).
Telling needs messages, so edges can be thinned out as training goes on: each is kept with a chance that falls to 0, and
what is left in the end are independent actors, who see their own. The critic is MAPPO's; the team has one reward.

Source: Chen and Zhang, 2023. Differs from their code: what chance drew in acting is stored and used again in learning,
where they draw another graph; the ratio is that of the joint action, not of each agent's; they thin edges out by a
penalty on how far the share of edges lies from an aim that falls to 0. Not here: memory, shared parameters.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.graphs import Complete, Learnt
from thespis.actors.heads import act_rows
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.feeds import Rollouts
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Report, Transition, View
from thespis.learners.gradient import Number
from thespis.learners.joint import TeamActor, TeamNetwork, as_one, together
from thespis.learners.on_policy import OnPolicyState
from thespis.methods.online.ppo import PPO


class Lasting(eqx.Module):
    """Every edge is kept for ever."""

    def kept(self, updates: Int[Array, ""]) -> Float[Array, ""]:
        """The chance that an edge is kept, after so many updates."""
        return jnp.ones(())


class Fading(eqx.Module):
    """Every edge is kept until ``first``, none from ``last`` on; the chance falls linearly between."""

    first: Number = 400.0
    """Updates with all edges."""
    last: Number = 900.0
    """Updates until there are none."""

    def kept(self, updates: Int[Array, ""]) -> Float[Array, ""]:
        """The chance that an edge is kept, after so many updates."""
        return jnp.clip((self.last - updates) / (self.last - self.first), 0.0, 1.0)


class BayesianState(eqx.Module):
    """What PPO has learnt, and the number of updates."""

    learnt: OnPolicyState
    updates: Int[Array, ""]


class Bayesian(eqx.Module):
    """PPO of a joint policy along a learnt graph."""

    method: PPO = PPO()
    """By what the team learns; without memory."""
    graph: Learnt | Complete = eqx.field(static=True, default=Learnt())
    """Who may be told what others do: Learnt, or Complete."""
    edges: Lasting | Fading = Lasting()
    """How long edges stay: Lasting or Fading."""

    for_many: ClassVar[bool] = True
    name: ClassVar[str] = "bayesian"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Context-Aware Bayesian Network Actor-Critic Methods for Cooperative Multi-Agent RL", "Chen and Zhang",
                 2023, "arXiv:2306.01920"),
        *PPO.citations,
    )  # fmt: skip
    details: ClassVar[tuple[str, ...]] = (
        *PPO.details,
        "an order from scores with Gumbel noise, edges with logistic noise; hard forwards, sigmoids backwards",
        "one ratio of the joint action; one critic, which sees the state or all observations joined",
    )

    @property
    def feed(self) -> Rollouts:
        """What PPO eats."""
        return self.method.feed

    @property
    def discount(self) -> Any:
        """That of the team's one critic, which is PPO's."""
        return self.method.discount

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> BayesianState:
        """A fresh team. Raises ``UserError`` unless each of many agents makes one discrete choice."""
        if self.method.memory is not None:
            raise UserError("bayesian has no memory: leave method.memory out, or use mappo")
        one, ppo = as_one(spec), self.method
        network = TeamNetwork(spec, self.graph, ppo.hidden, key)
        learnt = ppo.begun(one, network)
        return BayesianState(learnt, jnp.zeros((), "int32"))

    def policy(self, state: BayesianState, mode: Mode) -> TeamActor:
        """The actors; edges are kept as they are at this stage of training."""
        network: Any = eqx.tree_at(lambda n: n.critic, state.learnt.network, ())
        kept = self.edges.kept(state.updates)
        return TeamActor(network, state.learnt.scales[0], self.method.observations, kept, mode)

    def begin(self, policy: TeamActor, n: int) -> tuple:
        """No memories."""
        return ()

    def act(self, policy: TeamActor, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Joint choices ``[row, agent]`` by group, and what chance drew for them."""
        action, drawn = act_rows(lambda _, view, key: policy.act(view, key), memory, view, key)
        return action, memory, drawn

    def judge(self, state: BayesianState, episode: Transition) -> Critique:
        """The critic's opinion, which no graph bears on."""
        team: Any = state.learnt.network
        agents, time = len(team.actor.choices), episode.reward.shape
        drawn = {"chance": jnp.zeros(time, "int32"), "kept": jnp.zeros((*time, agents**2), "int32")}
        return self.method.judge(state.learnt, together(team.actor, episode, drawn))

    def update(self, state: BayesianState, batch: Batch, key: Key[Array, ""]) -> tuple[BayesianState, Report]:
        """All epochs on one rollout of the team."""
        network: Any = state.learnt.network
        drawn: Any = batch.steps.extras
        steps = together(network.actor, batch.steps, drawn)
        told = jax.vmap(jax.vmap(network.graph))(steps.view.observation)
        learnt, report = self.method.update(state.learnt, Batch(steps, batch.mask, (), batch.index), key)
        agents = told.shape[-1]
        share = 2.0 * jnp.mean(told) / (1.0 - 1.0 / agents)
        return BayesianState(learnt, state.updates + 1), Report({**report.metrics, "edges": share})
