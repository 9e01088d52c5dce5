r"""Opponent pool: each episode is played against one of the learner's own past policies.

Every ``snapshot_interval`` steps of a seed a copy of the policy joins the pool; if it is full, the oldest leaves.
``opponent_sampler`` gives the probability of each member:

- the latest alone: self-play (:class:`LatestOpponent`);
- all equally: fictitious self-play (:class:`UniformOpponent`);
- hard ones first, in proportion to :math:`(1 - P[\text{win}])^p` (:class:`PFSPOpponent`);
- the equilibrium of the game whose actions are the members: policy-space response oracles
  (:class:`EquilibriumOpponent`).

Some functions here are shared by all curricula that draw opponents.

Source: Heinrich et al., 2015 (fictitious self-play); Vinyals et al., 2019 (hard ones first); Lanctot et al., 2017
(policy-space response oracles).

Differs from the last: one learner continues, where response oracles train every response from scratch.
"""

from __future__ import annotations

from typing import ClassVar, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.contracts import Environment, Game, Method
from thespis.core.errors import UserError
from thespis.core.records import Citation, Critique, Draw, EnvSpec, EpisodeStats, Report, Transition
from thespis.curricula.fixed import repeat_params
from thespis.envs.games.opponents import RANDOM_SEAT, OpponentEnv, OpponentParams
from thespis.runtime.keys import indexed_keys


@runtime_checkable
class OpponentSampler(Protocol):
    """Sampling rule over the members of an opponent pool."""

    def probs(
        self,
        active: Bool[Array, " member"],
        ages: Int[Array, " member"],
        win_rates: Float[Array, " member"],
        payoff_matrix: Float[Array, "member member"],
    ) -> Float[Array, " member"]:
        """Probabilities of the members; 0 for empty slots, where ``active`` is false.

        ``ages``: larger is later. ``win_rates``: the learner's points against each member, in [0, 1].
        ``payoff_matrix``: points of each member against each other.
        """
        ...


class LatestOpponent(eqx.Module):
    """The member that joined last: self-play."""

    def probs(self, active: Array, ages: Array, win_rates: Array, payoff_matrix: Array) -> Float[Array, " member"]:
        """Probability 1 for the latest member."""
        return jax.nn.one_hot(jnp.argmax(jnp.where(active, ages, -2)), active.shape[0])


class UniformOpponent(eqx.Module):
    """All members with equal probability: fictitious self-play."""

    def probs(self, active: Array, ages: Array, win_rates: Array, payoff_matrix: Array) -> Float[Array, " member"]:
        """Uniform over active members."""
        return active / jnp.sum(active)


class PFSPOpponent(eqx.Module):
    """Prioritised fictitious self-play: weights ``(1 - win_rate)**power`` (PFSP; Vinyals et al. 2019)."""

    power: float = 2.0

    def probs(self, active: Array, ages: Array, win_rates: Array, payoff_matrix: Array) -> Float[Array, " member"]:
        """In proportion to the weights; uniform where the learner always wins."""
        return normalize_weights(active, (1.0 - win_rates) ** self.power)


class EquilibriumOpponent(eqx.Module):
    """The equilibrium of the zero-sum game whose actions are the members (Lanctot et al. 2017), by regret matching.

    The game is symmetric: ``payoff_matrix`` holds points, of which 1/2 is even.
    """

    num_iterations: int = eqx.field(static=True, default=500)

    def probs(self, active: Array, ages: Array, win_rates: Array, payoff_matrix: Array) -> Float[Array, " member"]:
        """The average strategy of regret matching+ in self-play (Tammelin 2014)."""
        payoff = jnp.where(active[:, None] & active[None, :], payoff_matrix - 0.5, 0.0)

        def strategy(regret: Array) -> Array:
            positive = jnp.where(active, jnp.maximum(regret, 0.0), 0.0)
            total = jnp.sum(positive)
            return jnp.where(total > 0, positive / jnp.where(total > 0, total, 1.0), active / jnp.sum(active))

        def step(carry: tuple[Array, Array], weight: Array) -> tuple[tuple[Array, Array], None]:
            regret, total = carry
            current = strategy(regret)
            value = payoff @ current
            regret = jnp.maximum(regret + value - current @ value, 0.0)
            return (regret, total + weight * current), None

        zero = jnp.zeros(active.shape)
        (_, total), _ = jax.lax.scan(step, (zero, zero), 1.0 + jnp.arange(self.num_iterations))
        return total / jnp.sum(total)


def normalize_weights(active: Bool[Array, " member"], weights: Float[Array, " member"]) -> Float[Array, " member"]:
    """Probabilities in proportion to non-negative weights of active members; uniform where all weights are 0."""
    weights = jnp.where(active, weights + 1e-6, 0.0)
    return weights / jnp.sum(weights)


def require_game(env: Environment) -> Game:
    """The game of an environment. Raises ``UserError`` if it is no game of several players."""
    game = env.spec.game
    if game is None or game.spec.num_players < 2:
        raise UserError(f"{env.spec.name} is no game with opponents: choose another (thespis list envs pgx)")
    return game


def require_single_learner(method: Method, states: PyTree, learner_index: int) -> tuple[Method, PyTree]:
    """Method and states of a run with one learner. Raises ``UserError`` for any index but 0."""
    if learner_index:
        raise UserError(f"this run has one learner: there is no #{learner_index}")
    return method, states


class OpponentPoolState(eqx.Module):
    """Pool members, and the results against them."""

    policies: PyTree
    """Members' policies, leaves ``[member, ...]``."""
    num_joined: Int[Array, "*seed"]
    """Number of members that have ever joined. The first is the initial one, which plays at random."""
    num_steps: Int[Array, "*seed"]
    win_rates: Float[Array, "*seed member"]
    """The learner's moving average of points against each member: a win is 1, a draw 1/2."""
    payoff_matrix: Float[Array, "*seed member member"]
    """Points of each member against each other, as of when the later one joined; 1/2 where unknown."""
    opponent_probs: Float[Array, "*seed member"]
    """Probability that each member is drawn, until the next update."""


class OpponentPool(eqx.Module):
    """Opponents drawn from a pool of past policies; the learner's seat is drawn at random."""

    capacity: int = eqx.field(static=True, default=16)
    """Members that are kept."""
    snapshot_interval: int = eqx.field(static=True, default=20_000)
    """Environment steps of a seed between two snapshots."""
    opponent_sampler: OpponentSampler = UniformOpponent()
    """Draws opponents: LatestOpponent, UniformOpponent, PFSPOpponent or EquilibriumOpponent."""
    ema_rate: float = 0.02
    """Weight of one game in the moving average of points, in (0, 1]."""

    name: ClassVar[str] = "past_selves"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Fictitious Self-Play in Extensive-Form Games", "Heinrich et al.", 2015, "ICML 2015"),
        Citation("Grandmaster level in StarCraft II", "Vinyals et al.", 2019, "10.1038/s41586-019-1724-z"),
        Citation("A Unified Game-Theoretic Approach to MARL", "Lanctot et al.", 2017, "arXiv:1711.00832"),
    )
    needs_critique: ClassVar[bool] = False
    draws_per_rollout: ClassVar[bool] = False

    def make_learner(self, method: Method) -> Method:
        """The learner: the method itself, for the one player that learns."""
        return method

    def make_env(self, env: Environment, method: Method) -> Environment:
        """One player's view of the game of ``env``. Raises ``UserError`` if it is no game of several players."""
        return OpponentEnv(require_game(env), method)

    def select_player(self, method: Method, states: PyTree, learner_index: int) -> tuple[Method, PyTree]:
        """Parameters of the only player that learns."""
        return require_single_learner(method, states, learner_index)

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> OpponentPoolState:
        """A pool whose one member plays at random."""
        if not isinstance(spec.params, OpponentParams):
            raise UserError(f"{spec.name} has no seats for opponents")
        if self.capacity < 2 or self.snapshot_interval < 1:
            raise UserError("a pool of opponents needs capacity >= 2 and snapshot_interval >= 1")
        even = jnp.full(self.capacity, 0.5)
        matrix, zero = jnp.full((self.capacity, self.capacity), 0.5), jnp.zeros((), "int32")
        policies = repeat_params(spec.params.policy, self.capacity)
        return self._update_probs(OpponentPoolState(policies, zero + 1, zero, even, matrix, even))

    def draw(self, state: OpponentPoolState, key: Key[Array, ""], n: int) -> Draw:
        """Opponents and seats of ``n`` episodes."""
        logits = jnp.log(state.opponent_probs)
        member = jax.vmap(lambda k: jax.random.categorical(k, logits))(indexed_keys(key, n)).astype("int32")
        policies = jax.tree.map(lambda x: x[member], state.policies)
        seats = jnp.full(n, RANDOM_SEAT, "int32")
        return Draw(OpponentParams(policies, self._ages(state)[member] < 0, seats, member))

    def update(
        self,
        state: OpponentPoolState,
        rollout: Transition,
        critique: Critique | None,
        stats: EpisodeStats,
        key: Key[Array, ""],
    ) -> tuple[OpponentPoolState, Report]:
        """Update win rates from finished games, and add the policy to the pool when it is due."""
        win_rates = update_win_rates(state.win_rates, stats.params.pool_index, stats.returns, stats.done, self.ema_rate)
        steps = state.num_steps + stats.done.size
        joins = (steps // self.snapshot_interval) > (state.num_steps // self.snapshot_interval)
        expected = jnp.sum(state.opponent_probs * win_rates)
        state = OpponentPoolState(
            state.policies, state.num_joined, steps, win_rates, state.payoff_matrix, state.opponent_probs
        )
        state = jax.tree.map(lambda new, old: jnp.where(joins, new, old), self._add_member(state, stats.policy), state)
        members = jnp.minimum(state.num_joined, self.capacity).astype("float32")
        return self._update_probs(state), Report({"members": members, "points": expected})

    def _add_member(self, state: OpponentPoolState, policy: PyTree) -> OpponentPoolState:
        """The pool with one more member, in the slot of the oldest if the pool is full."""
        slot = state.num_joined % self.capacity
        policies = jax.tree.map(lambda pool, new: pool.at[slot].set(new), state.policies, policy)
        matrix = (
            state.payoff_matrix.at[slot]
            .set(state.win_rates)
            .at[:, slot]
            .set(1.0 - state.win_rates)
            .at[slot, slot]
            .set(0.5)
        )
        return OpponentPoolState(
            policies,
            state.num_joined + 1,
            state.num_steps,
            state.win_rates.at[slot].set(0.5),
            matrix,
            state.opponent_probs,
        )

    def _ages(self, state: OpponentPoolState) -> Int[Array, " member"]:
        """When each member joined: larger is later; -1 for the initial one, which plays at random."""
        slots = jnp.arange(self.capacity)
        last = state.num_joined - 1
        order = last - (last - slots) % self.capacity
        return jnp.where(order == 0, -1, order)

    def _update_probs(self, state: OpponentPoolState) -> OpponentPoolState:
        """A copy with opponent probabilities computed from the win rates."""
        active: Bool[Array, " member"] = jnp.arange(self.capacity) < state.num_joined
        probs = self.opponent_sampler.probs(active, self._ages(state), state.win_rates, state.payoff_matrix)
        return eqx.tree_at(lambda pool: pool.opponent_probs, state, probs)


def update_win_rates(
    win_rates: Float[Array, " member"],
    member: Int[Array, "time row"],
    returns: Float[Array, "time row"],
    done: Bool[Array, "time row"],
    ema_rate: float | Array,
) -> Float[Array, " member"]:
    """One learner's moving average of points against each member, with finished games added at weight ``ema_rate``."""
    points = (jnp.sign(returns) + 1.0) / 2.0
    games = (member[..., None] == jnp.arange(win_rates.shape[0])) & done[..., None]
    count = games.sum((0, 1))
    mean = (games * points[..., None]).sum((0, 1)) / jnp.maximum(count, 1)
    keep = (1.0 - ema_rate) ** count
    return keep * win_rates + (1.0 - keep) * mean
