r"""Joint policy as a Bayesian network: each agent acts on its observation and the actions of its parents in a graph.

.. math:: \log \pi(a | s, G) = \sum_i \log \pi_i(a_i | o_i, a_{pa_G(i)})

A network makes the graph from the observations of all agents. Scores with Gumbel noise give an order, which keeps the
graph acyclic; each edge that the order allows is sampled independently. Both are binary in the forward pass. In the
backward pass, the order "i before j" has the slope of a sigmoid of the difference of their scores, an edge that of a
sigmoid of its logit.

Source: Chen and Zhang, 2023, after Charpentier et al., 2022. Differs from them: their orders are sorted softly, by
Sinkhorn's iteration.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.distributions import Categorical, ProductDistribution
from thespis.core.records import EnvSpec
from thespis.core.spaces import AgentGroup, Box, CompositeSpace, Discrete, MultiDiscrete, Space, dict_space
from thespis.nets.body import Body
from thespis.nets.mlp import Linear, orthogonal
from thespis.runtime.keys import fold

DependencyGraph = Float[Array, "parent child"]
"""Adjacency matrix: 1 where the child observes the parent's action."""


class LearnedGraphSampler(eqx.Module):
    """Network that samples a dependency graph from an observation."""

    body: Body
    order_scores: Linear
    edge_logits: Linear

    def __init__(self, observation_space: Space, num_agents: int, hidden_sizes: tuple[int, ...], key: Key[Array, ""]):
        keys = jax.random.split(key, 3)
        self.body = Body(observation_space, hidden_sizes, keys[0], init=orthogonal(2**0.5), activation=jnp.tanh)
        self.order_scores = Linear(self.body.feature_size, num_agents, orthogonal(0.01), keys[1])
        self.edge_logits = Linear(self.body.feature_size, num_agents * num_agents, orthogonal(0.01), keys[2])

    def __call__(
        self, observation: PyTree, key: Key[Array, ""], noise_scale: Float[Array, ""] | float
    ) -> DependencyGraph:
        """A graph: sampled where ``noise_scale`` is 1; the most probable edges and order where it is 0."""
        order_key, edge_key = jax.random.split(key)
        features, _ = self.body((), observation)
        scores = self.order_scores(features)
        num_agents = scores.size
        scores = scores + noise_scale * jax.random.gumbel(order_key, scores.shape)
        edges = self.edge_logits(features).reshape(num_agents, num_agents)
        edges = edges + noise_scale * jax.random.logistic(edge_key, edges.shape)
        rank = jnp.argsort(jnp.argsort(-scores))  # without ties, so that no order has a cycle
        before = _straight_through(rank[:, None] < rank, scores[:, None] - scores)
        return before * _straight_through(edges > 0.0, edges)


class CompleteGraphSampler(eqx.Module):
    """Graph sampler that returns the complete graph: each agent observes the actions of all agents before it."""

    num_agents: int = eqx.field(static=True)

    def __call__(
        self, observation: PyTree, key: Key[Array, ""], noise_scale: Float[Array, ""] | float
    ) -> DependencyGraph:
        """The strictly upper triangular adjacency matrix, always."""
        return jnp.triu(jnp.ones((self.num_agents, self.num_agents)), 1)


@runtime_checkable
class GraphSampler(Protocol):
    """Sampler of graphs, an ``equinox.Module``."""

    def __call__(
        self, observation: PyTree, key: Key[Array, ""], noise_scale: Float[Array, ""] | float
    ) -> DependencyGraph:
        """An acyclic graph for one joint observation: 1 where the second agent observes the action of the first."""
        ...


class AgentGraph(abc.ABC):
    """Slot: the graph of which agents observe whose actions, a frozen dataclass."""

    @abc.abstractmethod
    def build(
        self, observation_space: Space, num_agents: int, hidden_sizes: tuple[int, ...], key: Key[Array, ""]
    ) -> GraphSampler:
        """Build the network that samples graphs of ``num_agents`` agents."""


@dataclasses.dataclass(frozen=True)
class LearnedGraph(AgentGraph):
    """Learned dependency graph (setting): sampled by a network that is trained with the actors."""

    def build(
        self, observation_space: Space, num_agents: int, hidden_sizes: tuple[int, ...], key: Key[Array, ""]
    ) -> LearnedGraphSampler:
        """Build the network that samples dependency graphs."""
        return LearnedGraphSampler(observation_space, num_agents, hidden_sizes, key)


@dataclasses.dataclass(frozen=True)
class CompleteGraph(AgentGraph):
    """Complete dependency graph (setting): all edges, in the order of the agents.

    Such a policy can represent any joint policy.
    """

    def build(
        self, observation_space: Space, num_agents: int, hidden_sizes: tuple[int, ...], key: Key[Array, ""]
    ) -> CompleteGraphSampler:
        """The graph sampler, which has no parameters."""
        return CompleteGraphSampler(num_agents)


class ConditionalPolicy(eqx.Module):
    """Policy of one agent: logits given its observation and its parents' actions."""

    body: Body
    out: Linear

    def __call__(self, observation: PyTree, parent_actions: Float[Array, "parent width"]) -> Float[Array, " n"]:
        """Logits of the agent's choices. Rows of ``parent_actions`` of agents that are no parents are 0."""
        return self.out(self.body((), {"own": observation, "told": parent_actions})[0])


class BayesianNetworkPolicy(eqx.Module):
    """Graph sampler and one conditional policy per agent; parameters are stacked by group, ``[agent, ...]``."""

    graph_sampler: GraphSampler
    agent_policies: dict[str, ConditionalPolicy]
    groups: tuple[AgentGroup, ...] = eqx.field(static=True)
    num_actions: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        spec: EnvSpec,
        observation_space: Space,
        graph_config: Any,
        hidden_sizes: tuple[int, ...],
        key: Key[Array, ""],
    ):
        self.groups, self.num_actions = spec.groups, num_actions_per_agent(spec)
        parent_actions = Box((len(self.num_actions), max(self.num_actions)))
        self.graph_sampler = graph_config.build(
            observation_space, len(self.num_actions), hidden_sizes, fold(key, "graph")
        )

        def build_agent(group: AgentGroup, key: Key[Array, ""]) -> ConditionalPolicy:
            body_key, out_key = jax.random.split(key)
            assert isinstance(spec.observation_space, CompositeSpace)
            own = dict(spec.observation_space.spaces)[group.name]
            body = Body(
                dict_space(own=own, told=parent_actions),
                hidden_sizes,
                body_key,
                init=orthogonal(2**0.5),
                activation=jnp.tanh,
            )
            return ConditionalPolicy(
                body, Linear(body.feature_size, self.group_num_actions()[group.name], orthogonal(0.01), out_key)
            )

        def build_group(group: AgentGroup) -> ConditionalPolicy:
            return jax.vmap(lambda k: build_agent(group, k))(jax.random.split(fold(key, group.name), group.num_agents))

        self.agent_policies = {group.name: build_group(group) for group in spec.groups}

    def group_num_actions(self) -> dict[str, int]:
        """Number of choices of an agent of each group."""
        starts = np.cumsum([0, *(group.num_agents for group in self.groups)])
        return {group.name: self.num_actions[at] for group, at in zip(self.groups, starts[:-1], strict=True)}

    def split_by_group(self, actions: Int[Array, " agent"]) -> dict[str, Int[Array, "..."]]:
        """Split a joint action by group."""
        cuts = np.cumsum([group.num_agents for group in self.groups])[:-1]
        return {group.name: part for group, part in zip(self.groups, jnp.split(actions, cuts), strict=True)}

    def conditional_distribution(
        self, graph: DependencyGraph, observations: dict[str, tuple], action_mask: PyTree, actions: Int[Array, " agent"]
    ) -> ProductDistribution:
        """Each agent's distribution given the others' ``actions``, in one environment.

        Actions of agents that are no parents do not matter.
        """
        parent_actions = graph.T[:, :, None] * jax.nn.one_hot(actions, max(self.num_actions))
        parts, offset = [], 0
        for group in self.groups:
            own = jax.tree.map(lambda *agents: jnp.stack(agents), *observations[group.name])
            logits = jax.vmap(lambda policy, *inputs: policy(*inputs))(
                self.agent_policies[group.name], own, parent_actions[offset : offset + group.num_agents]
            )
            parts += [Categorical(z, mask) for z, mask in zip(logits, action_mask[group.name], strict=True)]
            offset += group.num_agents
        return ProductDistribution(tuple(parts), MultiDiscrete(self.num_actions))

    def sample(
        self,
        graph: DependencyGraph,
        observations: dict[str, tuple],
        action_mask: PyTree,
        key: Key[Array, ""],
        *,
        greedy: bool,
    ) -> tuple[Int[Array, " agent"], Float[Array, ""]]:
        """A joint action, sampled parents first, and its log-probability. ``greedy``: each agent takes its mode.

        All agents choose again in each round, with the same noise. An agent whose parents' actions are final keeps its
        action, so after as many rounds as there are agents all actions are final, whatever the order.
        """

        def sample_round(_: Any, done: Int[Array, " agent"]) -> Int[Array, " agent"]:
            policy = self.conditional_distribution(graph, observations, action_mask, done)
            return policy.mode() if greedy else policy.sample(key)

        num_agents = len(self.num_actions)
        actions = jax.lax.fori_loop(0, num_agents, sample_round, jnp.zeros(num_agents, "int32"))
        return actions, self.conditional_distribution(graph, observations, action_mask, actions).log_prob(actions)


def num_actions_per_agent(spec: EnvSpec) -> tuple[int, ...]:
    """Number of choices of each agent; 0 where its action is not a single discrete choice."""
    parts = dict(spec.action_space.spaces) if isinstance(spec.action_space, CompositeSpace) else {}
    per_group = [(parts[g.name], g.num_agents) for g in spec.groups]
    return tuple(s.n if isinstance(s, Discrete) else 0 for s, count in per_group for _ in range(count))


def _straight_through(hard: Array, soft: Array) -> Array:
    """``hard`` with the gradient of ``sigmoid(soft)``."""
    soft = jax.nn.sigmoid(soft)
    return hard.astype("float32") + (soft - jax.lax.stop_gradient(soft))
