"""League training: main agents, main exploiters and league exploiters learn at once and play each other.

Main agents learn to beat everybody, including their own past and that of the exploiters. A main exploiter learns to
beat the current main agents, a league exploiter every member that has ever joined; main agents then meet the
exploiters. Every ``snapshot_interval`` steps a copy of each learner joins (the oldest leave), and main exploiters are
reset to their initial weights; league exploiters are reset every ``exploiter_reset_generations`` generations, main
agents never. Matchmaking gives the probability that each learner meets each member, from win rates.

Source: Vinyals et al., 2019 (AlphaStar), methods and published pseudo-code, also for the matchmaking.

Differs from it: here the probabilities of opponents are computed from the same rules, where a learner there continues
with the opponent that it drew; learners start untrained, and the first copies of all play at random, where theirs had
learned from people; copies join by steps alone; league exploiters are reset at fixed intervals, not at random (1/4);
current main agents are met as they played one rollout ago; the oldest copies leave; the test of whether a main agent
has forgotten how to win also counts members that it has never beaten.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.contracts import Environment, Method, MultiAgentMethod
from thespis.core.errors import UserError
from thespis.core.feeds import RolloutFeed, require_batches_of
from thespis.core.records import Citation, Critique, Draw, EnvSpec, EpisodeStats, Number, Report, Transition
from thespis.curricula.fixed import repeat_params
from thespis.curricula.opponent_pool import normalize_weights, require_game, update_win_rates
from thespis.envs.games.opponents import LEAGUE_GROUP, RANDOM_SEAT, LeagueEnv, OpponentEnv, OpponentParams
from thespis.learners.multi_agent.independent_learners import IndependentLearners
from thespis.learners.multi_agent.parameter_sharing import PeriodicReset, rollouts_per_interval
from thespis.runtime.keys import indexed_keys

LOSING_THRESHOLD, FORGETTING_THRESHOLD, HOPELESS_THRESHOLD = 0.3, 0.7, 0.1
"""Win rates (points) below which an exploiter needs an answer or a main agent is too strong for another; below which a
past self is met again; and below which an exploiter looks for an easier main agent.
"""

MemberValues = Float[Array, " member"]
MemberMask = Bool[Array, " member"]


class LeagueRole(enum.Enum):
    """Role of a learner in a league."""

    MAIN = "main"
    MAIN_EXPLOITER = "main_exploiter"
    LEAGUE_EXPLOITER = "league_exploiter"


@dataclasses.dataclass(frozen=True)
class LeagueRoster:
    """The learners' roles, and the layout of league members; static.

    Members are the current main agents, then ``max_generations`` generations of copies of all learners.
    """

    roles: tuple[LeagueRole, ...]
    max_generations: int

    @property
    def num_main_agents(self) -> int:
        """Number of main agents, which are the first learners."""
        return self.roles.count(LeagueRole.MAIN)

    @property
    def num_members(self) -> int:
        """Number of slots for members."""
        return self.num_main_agents + self.max_generations * len(self.roles)

    @property
    def member_learner(self) -> np.ndarray:
        """Index of the learner that each member is (a copy of), ``[member]``."""
        return np.concatenate(
            [np.arange(self.num_main_agents), np.tile(np.arange(len(self.roles)), self.max_generations)]
        )

    @property
    def is_snapshot(self) -> np.ndarray:
        """Which members are copies rather than current main agents, ``[member]``."""
        return np.arange(self.num_members) >= self.num_main_agents

    def first_slot(self, generation: Array) -> Array:
        """Slot of the first copy of a generation."""
        return self.num_main_agents + generation % self.max_generations * len(self.roles)


def matchmaking_probs(
    roster: LeagueRoster,
    learner: int,
    active: MemberMask,
    win_rates: MemberValues,
    pfsp_share: Number,
    verification_share: Number,
) -> MemberValues:
    """Probabilities that ``learner`` meets each member, from its win rates against them.

    ``active``: members that have joined. A main agent meets copies of all learners, hard ones first, with probability
    ``pfsp_share``; with ``verification_share`` exploiters and past main agents that it loses to; else a current main
    agent.
    """
    snapshots = active & roster.is_snapshot
    match roster.roles[learner]:
        case LeagueRole.LEAGUE_EXPLOITER:
            return _pfsp_linear_capped(snapshots, win_rates)
        case LeagueRole.MAIN_EXPLOITER:
            return _mean_probs(
                [
                    _self_play_probs(roster, j, snapshots, win_rates, HOPELESS_THRESHOLD)
                    for j in range(roster.num_main_agents)
                ]
            )
        case LeagueRole.MAIN:
            other_games = [
                _main_agent_probs(roster, j, snapshots, win_rates, pfsp_share, verification_share)
                for j in range(roster.num_main_agents)
            ]
            return pfsp_share * _pfsp_squared(snapshots, win_rates) + _mean_probs(other_games)


def _main_agent_probs(
    roster: LeagueRoster,
    j: int,
    snapshots: MemberMask,
    win_rates: MemberValues,
    pfsp_share: Number,
    verification_share: Number,
) -> MemberValues:
    """Probabilities of a main agent's other games, in sum ``1 - pfsp_share``, if it draws main agent ``j``."""
    self_play = _self_play_probs(roster, j, snapshots, win_rates, LOSING_THRESHOLD)
    past, exploiters = snapshots & (roster.member_learner == j), snapshots & _is_main_exploiter(roster)
    verification = jnp.where(
        _min_win_rate(past, win_rates) < FORGETTING_THRESHOLD, _pfsp_squared(past, win_rates), self_play
    )
    if LeagueRole.MAIN_EXPLOITER in roster.roles:
        verification = jnp.where(
            _min_win_rate(exploiters, win_rates) < LOSING_THRESHOLD, _pfsp_squared(exploiters, win_rates), verification
        )
    return verification_share * verification + (1.0 - pfsp_share - verification_share) * self_play


def _self_play_probs(
    roster: LeagueRoster, j: int, snapshots: MemberMask, win_rates: MemberValues, threshold: float
) -> MemberValues:
    """The current main agent ``j``, or where the win rate against it is too low, its copies, even games first."""
    current = jnp.asarray(np.arange(roster.num_members) == j, "float32")
    return jnp.where(
        win_rates[j] > threshold, current, _pfsp_variance(snapshots & (roster.member_learner == j), win_rates)
    )


def _is_main_exploiter(roster: LeagueRoster) -> np.ndarray:
    """Which members are main exploiters or copies of them."""
    return np.array([roster.roles[i] is LeagueRole.MAIN_EXPLOITER for i in roster.member_learner])


def _pfsp_squared(active: MemberMask, win_rates: MemberValues) -> MemberValues:
    """PFSP with weights ``(1 - win_rate)^2``: hard opponents first."""
    return normalize_weights(active, (1.0 - win_rates) ** 2)


def _pfsp_variance(active: MemberMask, win_rates: MemberValues) -> MemberValues:
    """PFSP with weights ``win_rate * (1 - win_rate)``: even opponents first."""
    return normalize_weights(active, win_rates * (1.0 - win_rates))


def _pfsp_linear_capped(active: MemberMask, win_rates: MemberValues) -> MemberValues:
    """PFSP with weights ``min(1/2, 1 - win_rate)``: equal for opponents that win half of the games or more."""
    return normalize_weights(active, jnp.minimum(0.5, 1.0 - win_rates))


def _min_win_rate(active: MemberMask, win_rates: MemberValues) -> Array:
    return jnp.min(jnp.where(active, win_rates, 1.0))


def _mean_probs(probs: list[MemberValues]) -> MemberValues:
    return jnp.mean(jnp.stack(probs), axis=0)


class LeagueState(eqx.Module):
    """State of a league; ``roster`` says which learner each member is a copy of."""

    policies: PyTree
    """Members' policies, leaves ``[member, ...]``."""
    num_generations: Int[Array, "*seed"]
    """Number of generations that have joined; the first, number 0, plays at random."""
    num_rollouts: Int[Array, "*seed"]
    win_rates: Float[Array, "*seed learner member"]
    """Each learner's moving average of points against each member: a win is 1, a draw 1/2."""
    opponent_probs: Float[Array, "*seed learner member"]
    """Probability that each learner meets each member, until the next update."""
    roster: LeagueRoster = eqx.field(static=True)

    @property
    def active(self) -> Bool[Array, " member"]:
        """Which members have joined."""
        return jnp.arange(self.roster.num_members) < self.roster.num_main_agents + self.num_generations * len(
            self.roster.roles
        )

    @property
    def plays_random(self) -> Bool[Array, " member"]:
        """Members that play at random.

        All do until the first rollout has ended, then the first generation while it is kept.
        """
        first = self.roster.is_snapshot & (
            jnp.arange(self.roster.num_members) < self.roster.num_main_agents + len(self.roster.roles)
        )
        return (self.num_rollouts == 0) | (first & (self.num_generations <= self.roster.max_generations))

    def record_rollout(self, win_rates: Float[Array, "learner member"], current_policies: PyTree) -> LeagueState:
        """The state after a rollout, with new win rates and the main agents' policies of that rollout.

        ``current_policies``: leaves ``[learner]``.
        """
        num_main = self.roster.num_main_agents
        policies = jax.tree.map(
            lambda members, new: members.at[:num_main].set(new[:num_main]), self.policies, current_policies
        )
        return LeagueState(
            policies, self.num_generations, self.num_rollouts + 1, win_rates, self.opponent_probs, self.roster
        )

    def add_generation(self, current_policies: PyTree, reset_mask: Bool[Array, " learner"]) -> LeagueState:
        """The state with a copy of every learner in the slots of the oldest generation.

        Win rates against a copy are those against its original, as far as either player is a main agent, and 1/2
        otherwise. Learners in ``reset_mask`` get win rates of 1/2 against all members.
        """
        roster, count, slot = self.roster, len(self.roster.roles), self.roster.first_slot(self.num_generations)
        put = functools.partial(jax.lax.dynamic_update_slice_in_dim, start_index=slot, axis=0)
        policies = jax.tree.map(put, self.policies, current_policies)
        against_main = self.win_rates[:, : roster.num_main_agents]
        even = jnp.full((count, count), 0.5)
        new_columns = (
            even.at[: roster.num_main_agents]
            .set(1.0 - against_main.T)
            .at[:, : roster.num_main_agents]
            .set(against_main)
        )
        win_rates = jnp.where(
            reset_mask[:, None], 0.5, jax.lax.dynamic_update_slice(self.win_rates, new_columns, (0, slot))
        )
        return LeagueState(
            policies, self.num_generations + 1, self.num_rollouts, win_rates, self.opponent_probs, roster
        )

    def report(self, win_rates: Float[Array, "learner member"]) -> Report:
        """Expected points of each role's learners, and of main exploiters against current main agents."""
        expected = jnp.sum(self.opponent_probs * win_rates, axis=1)
        roles = {role: np.array([other is role for other in self.roster.roles]) for role in LeagueRole}
        metrics = {f"{role.value}_points": jnp.mean(expected[mask]) for role, mask in roles.items() if mask.any()}
        if (mask := roles[LeagueRole.MAIN_EXPLOITER]).any():
            metrics["exploited"] = jnp.mean(win_rates[mask][:, : self.roster.num_main_agents])
        return Report(metrics | {"generations": self.num_generations.astype("float32")})


def init_league(roster: LeagueRoster, policy: PyTree) -> LeagueState:
    """A league whose members all have ``policy`` and play at random."""
    even, zero = jnp.full((len(roster.roles), roster.num_members), 0.5), jnp.zeros((), "int32")
    return LeagueState(repeat_params(policy, roster.num_members), zero + 1, zero, even, even, roster)


class League(eqx.Module):
    """League curriculum.

    Learners 0 to ``num_main_agents - 1`` are main agents, then come main exploiters, then league exploiters.
    """

    num_main_agents: int = eqx.field(static=True, default=1)
    """Number of main agents, at least 1; a run reports the first of them."""
    num_main_exploiters: int = eqx.field(static=True, default=1)
    """Number of learners that exploit the current main agents."""
    num_league_exploiters: int = eqx.field(static=True, default=1)
    """Number of learners that exploit all copies."""
    max_generations: int = eqx.field(static=True, default=8)
    """Generations of copies that are kept, of all learners."""
    snapshot_interval: int = eqx.field(static=True, default=50_000)
    """Environment steps of a seed between two generations, rounded up to whole rollouts."""
    exploiter_reset_generations: int = eqx.field(static=True, default=4)
    """Generations after which a league exploiter is reset."""
    pfsp_share: float = 0.5
    """Share of a main agent's games against copies of all learners by PFSP, hard ones first."""
    verification_share: float = 0.15
    """Share of a main agent's games against exploiters and past selves that it loses to; the rest is self-play."""
    ema_rate: float = 0.02
    """Weight of one game in the moving average of points, in (0, 1]."""

    name: ClassVar[str] = "league"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Grandmaster level in StarCraft II", "Vinyals et al.", 2019, "10.1038/s41586-019-1724-z"),
    )
    needs_critique: ClassVar[bool] = False
    draws_per_rollout: ClassVar[bool] = False

    @property
    def roster(self) -> LeagueRoster:
        """The learners' roles. Raises ``UserError`` without a main agent or with room for one generation only."""
        counts = (self.num_main_agents, self.num_main_exploiters, self.num_league_exploiters)
        if (
            min(counts) < 0
            or self.num_main_agents < 1
            or self.max_generations < 2
            or min(self.snapshot_interval, self.exploiter_reset_generations) < 1
        ):
            raise UserError(
                "a league needs num_main_agents >= 1, max_generations >= 2, and both intervals (snapshot_interval, "
                "exploiter_reset_generations) >= 1"
            )
        return LeagueRoster(
            tuple(role for role, count in zip(LeagueRole, counts, strict=True) for _ in range(count)),
            self.max_generations,
        )

    def make_learner(self, method: Method) -> Method:
        """Independent learners, of which exploiters are reset periodically.

        Raises ``UserError`` unless ``method`` is for one agent and learns from rollouts.
        """
        if isinstance(method, MultiAgentMethod):
            raise UserError(f"a league trains methods for one agent (ppo): not {method.name}")
        require_batches_of("a learner of a league", method.feed, RolloutFeed)
        learners: Any = IndependentLearners(method, PeriodicReset(self.snapshot_interval, self._reset_generations))
        return learners

    def make_env(self, env: Environment, method: Method) -> Environment:
        """A game for each learner. Raises ``UserError`` if ``env`` is no game of several players."""
        learners: Any = method
        return LeagueEnv(OpponentEnv(require_game(env), learners.method), len(self.roster.roles))

    def select_player(self, method: Method, states: PyTree, learner_index: int) -> tuple[Method, PyTree]:
        """Method and states of learner ``learner_index``. Raises ``UserError`` if there is none."""
        if learner_index >= len(self.roster.roles):
            raise UserError(
                f"this league has learners #0 to #{len(self.roster.roles) - 1}: there is no #{learner_index}"
            )
        learners: Any = method
        return learners.method, jax.tree.map(lambda x: x[:, learner_index], states.by_group[LEAGUE_GROUP].current)

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> LeagueState:
        """A league with a first generation; all members play at random until there are results."""
        if not isinstance(spec.params, OpponentParams) or not spec.groups:
            raise UserError(f"{spec.name} has no tables for a league")
        return self._update_probs(init_league(self.roster, jax.tree.map(lambda x: x[0], spec.params.policy)))

    def draw(self, state: LeagueState, key: Key[Array, ""], n: int) -> Draw:
        """Opponents and seats of all learners in ``n`` episodes."""
        logits = jnp.log(state.opponent_probs)
        member = jax.vmap(lambda k: jax.random.categorical(k, logits))(indexed_keys(key, n)).astype("int32")
        policies = jax.tree.map(lambda x: x[member], state.policies)
        seats = jnp.full(member.shape, RANDOM_SEAT, "int32")
        return Draw(OpponentParams(policies, state.plays_random[member], seats, member))

    def update(
        self,
        state: LeagueState,
        rollout: Transition,
        critique: Critique | None,
        stats: EpisodeStats,
        key: Key[Array, ""],
    ) -> tuple[LeagueState, Report]:
        """Update win rates from finished games, and add a generation when it is due."""
        returns: Any = stats.agent_returns
        update_learners = jax.vmap(update_win_rates, in_axes=(0, 2, 2, None, None))
        win_rates = update_learners(
            state.win_rates, stats.params.pool_index, returns[LEAGUE_GROUP], stats.done, self.ema_rate
        )
        report = state.report(win_rates)
        policies = stats.policy.by_group[LEAGUE_GROUP]
        state = state.record_rollout(win_rates, policies)
        joins = state.num_rollouts % rollouts_per_interval(self.snapshot_interval, stats.done.size) == 0
        reset_mask = jnp.stack(
            [state.num_generations % times == 0 if times else jnp.zeros((), bool) for times in self._reset_generations]
        )
        joined = state.add_generation(policies, reset_mask)
        return self._update_probs(jax.tree.map(lambda new, old: jnp.where(joins, new, old), joined, state)), report

    @property
    def _reset_generations(self) -> tuple[int, ...]:
        """For each learner, the number of generations between resets; 0: never."""
        intervals = {
            LeagueRole.MAIN: 0,
            LeagueRole.MAIN_EXPLOITER: 1,
            LeagueRole.LEAGUE_EXPLOITER: self.exploiter_reset_generations,
        }
        return tuple(intervals[role] for role in self.roster.roles)

    def _update_probs(self, state: LeagueState) -> LeagueState:
        """A copy with opponent probabilities computed from the win rates."""
        learners = range(len(self.roster.roles))
        rows = [
            matchmaking_probs(
                self.roster, i, state.active, state.win_rates[i], self.pfsp_share, self.verification_share
            )
            for i in learners
        ]
        return eqx.tree_at(lambda league: league.opponent_probs, state, jnp.stack(rows))
