r"""Bayesian-network joint policy: PPO of a team whose agents act in turn and observe their parents' actions.

.. math:: \pi(a | s) = E_{G | s} \prod_i \pi_i(a_i | o_i, a_{pa_G(i)})

A network samples the graph anew at every step, from the observations of all agents, and is trained with the actors
(:mod:`thespis.papers.bayesian_joint_policy.graph_policy`). Observing parents' actions needs communication, so edges can
be removed during training: each is kept with a probability that decays to 0, and what remains in the end are
independent actors that see their own observations. The critic is MAPPO's; the team has one reward.

Source: Chen and Zhang, 2023.

Differs from their code: the random numbers used in acting are stored and reused in learning, where they sample another
graph; the ratio is that of the joint action, not of each agent's; they remove edges by a penalty on the distance of the
share of edges from a target that decays to 0. Not implemented: memory, shared parameters.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.policy_heads import vmap_act
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.feeds import RolloutFeed
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Number, Report, Transition, View
from thespis.learners.on_policy.method import OnPolicyState
from thespis.learners.optim.normalizers import IDENTITY
from thespis.methods.online.ppo import PPO
from thespis.papers.bayesian_joint_policy.graph_policy import AgentGraph, LearnedGraph
from thespis.papers.bayesian_joint_policy.joint_actor_critic import (
    JointActor,
    JointActorCritic,
    joint_spec,
    joint_transitions,
)


class _AllEdges(eqx.Module):
    """Constant edge schedule: every edge is always kept."""

    def keep_prob(self, num_updates: Int[Array, ""]) -> Float[Array, ""]:
        """Probability that an edge is kept after ``num_updates`` updates: 1."""
        return jnp.ones(())


_ALL_EDGES = _AllEdges()
"""What ``edge_schedule=None`` does."""


class LinearEdgeDecay(eqx.Module):
    """Linear edge decay: all edges until ``decay_start``, none from ``decay_end`` on, a linear probability between."""

    decay_start: Number = 400.0
    """Number of updates with all edges."""
    decay_end: Number = 900.0
    """Number of updates after which no edge is left."""

    def keep_prob(self, num_updates: Int[Array, ""]) -> Float[Array, ""]:
        """Probability that an edge is kept after ``num_updates`` updates."""
        return jnp.clip((self.decay_end - num_updates) / (self.decay_end - self.decay_start), 0.0, 1.0)


class BayesianNetworkState(eqx.Module):
    """Training state: PPO's state and the number of updates."""

    method_state: OnPolicyState
    num_updates: Int[Array, ""]


class BayesianNetworkPPO(eqx.Module):
    """Bayesian-network PPO: joint policy of a team over a learned graph; agents observe their parents' actions."""

    method: PPO = PPO()
    """PPO with which the team learns; without memory."""
    graph: AgentGraph = eqx.field(static=True, default=LearnedGraph())
    """Graph of which agents observe whose actions: LearnedGraph, CompleteGraph or your own module:Class."""
    edge_schedule: LinearEdgeDecay | None = None
    """Schedule of edges during training: None or LinearEdgeDecay."""

    multi_agent: ClassVar[bool] = True
    name: ClassVar[str] = "bayesian"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Context-Aware Bayesian Network Actor-Critic Methods for Cooperative Multi-Agent RL",
            "Chen and Zhang",
            2023,
            "arXiv:2306.01920",
        ),
        *PPO.citations,
    )
    details: ClassVar[tuple[str, ...]] = (
        *PPO.details,
        "order from scores with Gumbel noise, edges with logistic noise; straight-through sigmoid gradients",
        "one ratio of the joint action; one critic, which sees the state or all observations concatenated",
    )

    @property
    def feed(self) -> RolloutFeed:
        """Feed of the wrapped PPO."""
        return self.method.feed

    @property
    def discount(self) -> Any:
        """Discount of the team's critic, which is PPO's."""
        return self.method.discount

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> BayesianNetworkState:
        """Initialize the team. Raises ``UserError`` unless each of several agents has one discrete action."""
        if self.method.memory is not None:
            raise UserError("bayesian has no memory: leave method.memory out, or use mappo")
        joint, ppo = joint_spec(spec), self.method
        network = JointActorCritic(spec, self.graph, ppo.hidden_sizes, key)
        method_state = ppo.init_from(joint, network)
        return BayesianNetworkState(method_state, jnp.zeros((), "int32"))

    def policy(self, state: BayesianNetworkState, mode: Mode) -> JointActor:
        """The actors, with the current probability of keeping edges."""
        network: Any = eqx.tree_at(lambda n: n.critic, state.method_state.network, ())
        keep_prob = (self.edge_schedule or _ALL_EDGES).keep_prob(state.num_updates)
        return JointActor(
            network, state.method_state.normalizer_states[0], self.method.obs_normalizer or IDENTITY, keep_prob, mode
        )

    def init_memory(self, policy: JointActor, n: int) -> tuple:
        """The memory at an episode's start: nothing is remembered yet."""
        return ()

    def act(self, policy: JointActor, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Joint actions ``[row, agent]`` by group, and the random numbers they were sampled with."""
        action, noise = vmap_act(lambda _, view, key: policy.act(view, key), memory, view, key)
        return action, memory, noise

    def judge(self, state: BayesianNetworkState, episode: Transition) -> Critique:
        """The critic's critique, which does not depend on a graph."""
        team: Any = state.method_state.network
        agents, time = len(team.actor.num_actions), episode.reward.shape
        noise = {"chance": jnp.zeros(time, "int32"), "kept": jnp.zeros((*time, agents**2), "int32")}
        return self.method.judge(state.method_state, joint_transitions(team.actor, episode, noise))

    def update(
        self, state: BayesianNetworkState, batch: Batch, key: Key[Array, ""]
    ) -> tuple[BayesianNetworkState, Report]:
        """All epochs of minibatch updates on one rollout of the team."""
        network: Any = state.method_state.network
        noise: Any = batch.steps.extras
        steps = joint_transitions(network.actor, batch.steps, noise)
        edges = jax.vmap(jax.vmap(network.graph))(steps.view.observation)
        method_state, report = self.method.update(
            state.method_state, Batch(steps, batch.mask, (), batch.update_index), key
        )
        num_agents = edges.shape[-1]
        edge_share = 2.0 * jnp.mean(edges) / (1.0 - 1.0 / num_agents)
        return BayesianNetworkState(method_state, state.num_updates + 1), Report(
            {**report.metrics, "edges": edge_share}
        )
