r"""A joint policy along a graph: each agent chooses by what it sees and by what its parents have chosen.

.. math:: \log \pi(a | s, G) = \sum_i \log \pi_i(a_i | o_i, a_{pa_G(i)})

A net makes the graph from what all see. Scores with Gumbel noise give an order, which keeps it without cycles; each
edge that the order allows is drawn by itself. Both are yes or no forwards; backwards, "before" has the slope of a
sigmoid of the difference of two scores, an edge that of its own sigmoid.

Source: Chen and Zhang, 2023, after Charpentier et al., 2022. Differs from them: their orders are sorted softly, by
Sinkhorn's iteration.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.distributions import Categorical, Product
from thespis.core.agents import Group
from thespis.core.keys import fold
from thespis.core.records import EnvSpec
from thespis.core.spaces import Box, Discrete, MultiDiscrete, Space, Tree, dict_space
from thespis.nets.body import Body
from thespis.nets.mlp import Linear, orthogonal

Graph = Float[Array, "parent child"]
"""1 where the child is told what the parent does."""


class Drawn(eqx.Module):
    """A net that draws a graph for what is seen."""

    body: Body
    scores: Linear
    edges: Linear

    def __init__(self, seen: Space, agents: int, hidden: tuple[int, ...], key: Key[Array, ""]):
        keys = jax.random.split(key, 3)
        self.body = Body(seen, hidden, keys[0], init=orthogonal(2**0.5), activation=jnp.tanh)
        self.scores = Linear(self.body.size, agents, orthogonal(0.01), keys[1])
        self.edges = Linear(self.body.size, agents * agents, orthogonal(0.01), keys[2])

    def __call__(self, seen: PyTree, key: Key[Array, ""], noise: Float[Array, ""] | float) -> Graph:
        """A graph: drawn where ``noise`` is 1, the likeliest edges in the likeliest order where it is 0."""
        order_key, edge_key = jax.random.split(key)
        features, _ = self.body((), seen)
        scores = self.scores(features)
        agents = scores.size
        scores = scores + noise * jax.random.gumbel(order_key, scores.shape)
        edges = self.edges(features).reshape(agents, agents)
        edges = edges + noise * jax.random.logistic(edge_key, edges.shape)
        place = jnp.argsort(jnp.argsort(-scores))  # without ties, so that no order has a cycle
        before = _straight(place[:, None] < place, scores[:, None] - scores)
        return before * _straight(edges > 0.0, edges)


class Every(eqx.Module):
    """Each agent is told what all those in front of it do."""

    agents: int = eqx.field(static=True)

    def __call__(self, seen: PyTree, key: Key[Array, ""], noise: Float[Array, ""] | float) -> Graph:
        """Always the same."""
        return jnp.triu(jnp.ones((self.agents, self.agents)), 1)


@dataclasses.dataclass(frozen=True)
class Learnt:
    """A graph drawn by a net, which learns with the actors."""

    def build(self, seen: Space, agents: int, hidden: tuple[int, ...], key: Key[Array, ""]) -> Drawn:
        """The net."""
        return Drawn(seen, agents, hidden, key)


@dataclasses.dataclass(frozen=True)
class Complete:
    """All edges, in the order of the agents: a policy that can be any joint one."""

    def build(self, seen: Space, agents: int, hidden: tuple[int, ...], key: Key[Array, ""]) -> Every:
        """Nothing is learnt."""
        return Every(agents)


class Response(eqx.Module):
    """Logits of one agent's choices, by what it sees and what its parents do."""

    body: Body
    out: Linear

    def __call__(self, own: PyTree, told: Float[Array, "parent width"]) -> Float[Array, " n"]:
        """Logits; rows of those who are no parents are 0."""
        return self.out(self.body((), {"own": own, "told": told})[0])


class Ordered(eqx.Module):
    """A graph and a response of each agent, whose parameters are its own, ``[agent, ...]`` by group."""

    graph: Drawn | Every
    responses: dict[str, Response]
    groups: tuple[Group, ...] = eqx.field(static=True)
    choices: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, spec: EnvSpec, seen: Space, graph: Any, hidden: tuple[int, ...], key: Key[Array, ""]):
        self.groups, self.choices = spec.groups, choices(spec)
        told = Box((len(self.choices), max(self.choices)))
        self.graph = graph.build(seen, len(self.choices), hidden, fold(key, "graph"))

        def response(group: Group, key: Key[Array, ""]) -> Response:
            body_key, out_key = jax.random.split(key)
            assert isinstance(spec.observation, Tree)
            own = dict(spec.observation.parts)[group.name]
            body = Body(dict_space(own=own, told=told), hidden, body_key, init=orthogonal(2**0.5), activation=jnp.tanh)
            return Response(body, Linear(body.size, self.widths()[group.name], orthogonal(0.01), out_key))

        def group_of(group: Group) -> Response:
            return jax.vmap(lambda k: response(group, k))(jax.random.split(fold(key, group.name), group.count))

        self.responses = {group.name: group_of(group) for group in spec.groups}

    def widths(self) -> dict[str, int]:
        """How many choices an agent of each group has."""
        starts = np.cumsum([0, *(group.count for group in self.groups)])
        return {group.name: self.choices[at] for group, at in zip(self.groups, starts[:-1], strict=True)}

    def apart(self, done: Int[Array, " agent"]) -> dict[str, Int[Array, "..."]]:
        """A joint choice by group."""
        cuts = np.cumsum([group.count for group in self.groups])[:-1]
        return {group.name: part for group, part in zip(self.groups, jnp.split(done, cuts), strict=True)}

    def given(self, graph: Graph, seen: dict[str, tuple], legal: PyTree, done: Int[Array, " agent"]) -> Product:
        """What each agent would do in one world if the others did ``done``: entries of no parents do not matter."""
        told = graph.T[:, :, None] * jax.nn.one_hot(done, max(self.choices))
        parts, at = [], 0
        for group in self.groups:
            own = jax.tree.map(lambda *agents: jnp.stack(agents), *seen[group.name])
            logits = jax.vmap(lambda net, *x: net(*x))(self.responses[group.name], own, told[at : at + group.count])
            parts += [Categorical(z, may) for z, may in zip(logits, legal[group.name], strict=True)]
            at += group.count
        return Product(tuple(parts), MultiDiscrete(self.choices))

    def draw(
        self, graph: Graph, seen: dict[str, tuple], legal: PyTree, key: Key[Array, ""], *, best: bool
    ) -> tuple[Int[Array, " agent"], Float[Array, ""]]:
        """A joint choice, parents first, and its log-probability; ``best``: each takes what is likeliest.

        An agent that all its parents have chosen before keeps what it chooses: after as many rounds as there are
        agents all have, in whatever order the graph puts them. Its noise is the same in each round.
        """

        def again(_: Any, done: Int[Array, " agent"]) -> Int[Array, " agent"]:
            policy = self.given(graph, seen, legal, done)
            return policy.mode() if best else policy.sample(key)

        agents = len(self.choices)
        done = jax.lax.fori_loop(0, agents, again, jnp.zeros(agents, "int32"))
        return done, self.given(graph, seen, legal, done).log_prob(done)


def choices(spec: EnvSpec) -> tuple[int, ...]:
    """How many choices each agent has; 0 where what it does is no one discrete choice."""
    parts = dict(spec.action.parts) if isinstance(spec.action, Tree) else {}
    each = [(parts[g.name], g.count) for g in spec.groups]
    return tuple(s.n if isinstance(s, Discrete) else 0 for s, count in each for _ in range(count))


def _straight(hard: Array, soft: Array) -> Array:
    """``hard`` with the slope of a sigmoid of ``soft``."""
    soft = jax.nn.sigmoid(soft)
    return hard.astype("float32") + (soft - jax.lax.stop_gradient(soft))
