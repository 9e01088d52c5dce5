r"""Opponents drawn from the learner's own past: each episode is played against one of them.

Every ``every`` steps of a seed a copy of the policy joins the pool (the oldest leaves a full one), and ``choice`` says
how likely each member is drawn: the latest alone (self-play), all alike (fictitious self-play: Heinrich et al. 2015),
the hard ones first (Vinyals et al. 2019, :math:`(1 - P[\text{win}])^p`), or as the equilibrium of the game whose moves
are the members (policy-space response oracles: Lanctot et al. 2017).

Differs: one learner goes on learning, where response oracles train every response anew.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.contracts import Environment, Method
from thespis.core.errors import UserError
from thespis.core.keys import per_index
from thespis.core.records import Citation, EnvSpec, Outcomes, Report
from thespis.curricula.choosing import Choice, Uniformly
from thespis.curricula.fixed import repeat
from thespis.curricula.seating import game_of, only
from thespis.envs.games.versus import ANY, Opponents, Versus


class Pool(eqx.Module):
    """Members, and what is known of them."""

    policies: PyTree
    """Leaves ``[member, ...]``."""
    joined: Int[Array, "*seed"]
    """How many have joined, those that have left included; the first is the beginner, who plays at random."""
    steps: Int[Array, "*seed"]
    points: Float[Array, "*seed member"]
    """What the learner has won against each, in points: a win is 1, a draw 1/2; recent games count more."""
    matrix: Float[Array, "*seed member member"]
    """Points of each against each, as known when the later one joined; 1/2 where unknown."""
    chances: Float[Array, "*seed member"]
    """How likely each is drawn until the next update."""


class PastSelves(eqx.Module):
    """Opponents from a pool of past policies; the learner's seat is drawn by lot."""

    capacity: int = eqx.field(static=True, default=16)
    """Members that are kept."""
    every: int = eqx.field(static=True, default=20_000)
    """Environment steps of a seed between two that join."""
    choice: Choice = Uniformly()
    """Who is drawn: Latest, Uniformly, HardFirst or Equilibrium."""
    rate: float = 0.02
    """Weight of one game in the running points, in (0, 1]."""

    name: ClassVar[str] = "past_selves"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Fictitious Self-Play in Extensive-Form Games", "Heinrich et al.", 2015, "ICML 2015"),
        Citation("Grandmaster level in StarCraft II", "Vinyals et al.", 2019, "10.1038/s41586-019-1724-z"),
        Citation("A Unified Game-Theoretic Approach to MARL", "Lanctot et al.", 2017, "arXiv:1711.00832"),
    )

    def learner(self, method: Method) -> Method:
        """The method itself."""
        return method

    def world(self, environment: Environment, method: Method) -> Environment:
        """One seat of the game that ``environment`` is made of. Raises ``UserError`` if it is none of several."""
        return Versus(game_of(environment), method)

    def player(self, method: Method, states: PyTree, member: int) -> tuple[Method, PyTree]:
        """The one that there is."""
        return only(method, states, member)

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> Pool:
        """A pool whose one member plays at random."""
        if not isinstance(spec.params, Opponents):
            raise UserError(f"{spec.name} has no seats for opponents")
        if self.capacity < 2 or self.every < 1:
            raise UserError("a pool of opponents needs a capacity of at least 2, and at least one step between two")
        even = jnp.full(self.capacity, 0.5)
        matrix, zero = jnp.full((self.capacity, self.capacity), 0.5), jnp.zeros((), "int32")
        policies = repeat(spec.params.policy, self.capacity)
        return self._settled(Pool(policies, zero + 1, zero, even, matrix, even))

    def draw(self, state: Pool, key: Key[Array, ""], n: int) -> Opponents:
        """Opponents and seats of ``n`` episodes."""
        logits = jnp.log(state.chances)
        member = jax.vmap(lambda k: jax.random.categorical(k, logits))(per_index(key, n)).astype("int32")
        policies = jax.tree.map(lambda x: x[member], state.policies)
        return Opponents(policies, self._age(state)[member] < 0, jnp.full(n, ANY, "int32"), member)

    def update(self, state: Pool, outcomes: Outcomes, key: Key[Array, ""]) -> tuple[Pool, Report]:
        """Counts the points of the games that ended, and lets the policy join when it is time."""
        known = counted(state.points, outcomes.params.member, outcomes.returns, outcomes.ended, self.rate)
        steps = state.steps + outcomes.ended.size
        joins = (steps // self.every) > (state.steps // self.every)
        expected = jnp.sum(state.chances * known)
        state = Pool(state.policies, state.joined, steps, known, state.matrix, state.chances)
        state = jax.tree.map(lambda new, old: jnp.where(joins, new, old), self._with(state, outcomes.policy), state)
        members = jnp.minimum(state.joined, self.capacity).astype("float32")
        return self._settled(state), Report({"members": members, "points": expected})

    def _with(self, state: Pool, policy: PyTree) -> Pool:
        """The pool with one more member, in the place of the oldest of a full one."""
        place = state.joined % self.capacity
        policies = jax.tree.map(lambda all_, one: all_.at[place].set(one), state.policies, policy)
        matrix = state.matrix.at[place].set(state.points).at[:, place].set(1.0 - state.points).at[place, place].set(0.5)
        return Pool(policies, state.joined + 1, state.steps, state.points.at[place].set(0.5), matrix, state.chances)

    def _age(self, state: Pool) -> Int[Array, " member"]:
        """When each joined: the beginner is 0 and -1 marks it as the one who plays at random; larger is later."""
        place = jnp.arange(self.capacity)
        last = state.joined - 1
        order = last - (last - place) % self.capacity
        return jnp.where(order == 0, -1, order)

    def _settled(self, state: Pool) -> Pool:
        """With the chances that follow from what is known."""
        there: Bool[Array, " member"] = jnp.arange(self.capacity) < state.joined
        chances = self.choice.chances(there, self._age(state), state.points, state.matrix)
        return eqx.tree_at(lambda pool: pool.chances, state, chances)


def counted(
    known: Float[Array, " member"],
    member: Int[Array, "time row"],
    returns: Float[Array, "time row"],
    ended: Bool[Array, "time row"],
    rate: float | Array,
) -> Float[Array, " member"]:
    """Running points of one learner against each member, the games that ended added with weight ``rate`` each."""
    points = (jnp.sign(returns) + 1.0) / 2.0
    games = (member[..., None] == jnp.arange(known.shape[0])) & ended[..., None]
    count = games.sum((0, 1))
    mean = (games * points[..., None]).sum((0, 1)) / jnp.maximum(count, 1)
    keep = (1.0 - rate) ** count
    return keep * known + (1.0 - keep) * mean
