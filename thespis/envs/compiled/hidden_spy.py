"""Hidden-role game: one of several players is a spy, and only the spy knows it.

Every round all players vote, and the one with most votes stays at home; the others go on a mission. The spy sabotages
missions on which it goes, and votes like anybody else. Who it is can be inferred from which missions failed, from a
private suspicion of each player, and from the votes of the others, which tell something of their suspicions.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.records import AgentOutcome, EnvSpec, TimeStep
from thespis.core.spaces import AgentGroup, Box, Discrete, dict_space
from thespis.runtime.keys import fold

GROUP = "players"
NOBODY = -1
"""Vote or absentee before the first round."""


class HiddenSpyState(eqx.Module):
    """State of one episode: roles and suspicions, the last votes, and the record of all rounds so far."""

    spy: Int[Array, ""]
    suspects: Int[Array, " player"]
    """The player that each player suspects."""
    votes: Int[Array, " player"]
    """Votes of the last round; ``NOBODY`` before the first."""
    time: Int[Array, ""]
    num_votes: Int[Array, "voter player"]
    """How often each player has voted for each."""
    num_failures: Int[Array, " player"]
    """Failed missions on which each player went."""
    num_absences: Int[Array, " player"]
    """Missions for which each player stayed at home."""
    num_absent_failures: Int[Array, " player"]
    """Failed missions for which each player stayed at home."""


class HiddenSpy(eqx.Module):
    """Hidden-role game of ``num_players``, one of whom is a spy, over ``num_rounds`` votes and missions.

    A player may not vote for itself, and ties are broken at random. A mission with the spy is sabotaged with
    probability ``sabotage_prob``; any mission fails with probability ``accident_prob``. A round is worth 1 to the loyal
    players if its mission does not fail. At the start each loyal player suspects another player: the spy with
    probability ``clue_prob``, else one of the others; what the spy suspects is drawn like its votes, uniformly.

    A player observes its number and role, whom it suspects, all votes of the last round and how often each player has
    voted for each, how many missions with and without each player failed and how often it stayed at home, and the time.
    Counts are divided by the number of rounds. Critics may see who the spy is. The spy is scripted, and its agent never
    acts (action 0 alone is legal for it). With ``spy_learns`` it is a learner that is paid for failed missions; its
    actions from ``num_players`` on are votes with sabotage, those below without.
    """

    num_players: int = eqx.field(static=True, default=5)
    num_rounds: int = eqx.field(static=True, default=8)
    sabotage_prob: float = eqx.field(static=True, default=0.7)
    accident_prob: float = eqx.field(static=True, default=0.1)
    clue_prob: float = eqx.field(static=True, default=0.4)
    spy_learns: bool = eqx.field(static=True, default=False)
    belief_visible: bool = eqx.field(static=True, default=False)
    """Whether players also observe their own exact belief: see :meth:`beliefs`."""
    roles_visible: bool = eqx.field(static=True, default=False)
    """Whether all players also observe who the spy is."""

    def __check_init__(self):
        """Raise ``UserError`` for too few players, or probabilities that make a belief certain."""
        if self.num_players < 3 or self.num_rounds < 1:
            raise UserError(f"a hidden spy needs 3 players and a round, not {self.num_players} and {self.num_rounds}")
        for name in ("sabotage_prob", "accident_prob", "clue_prob"):
            if not 0.0 < getattr(self, name) < 1.0:
                raise UserError(f"{name}={getattr(self, name):g}: it must be above 0 and below 1")

    @property
    def spec(self) -> EnvSpec:
        """One group of players, and the spy's number for critics."""
        count = self.num_players
        size = count * (5 + 2 * count + self.belief_visible + self.roles_visible) + 2
        return EnvSpec(
            "hidden-spy",
            dict_space(**{GROUP: Box((size,), 0.0, 1.0)}),
            dict_space(**{GROUP: Discrete(count * (1 + self.spy_learns))}),
            has_action_mask=True,
            time_limit=self.num_rounds,
            privileged_space=Box((count,), 0.0, 1.0),
            groups=(AgentGroup(GROUP, count),),
            return_bounds=(0.0, float(self.num_rounds)),
        )

    def optimal_return(self) -> float:
        """Expected return of loyal players who know the spy and all vote for it."""
        return self.num_rounds * (1.0 - self.accident_prob)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[HiddenSpyState, TimeStep]:
        """Draws the spy, and whom each player suspects."""
        count = self.num_players
        spy = jax.random.randint(fold(key, "spy"), (), 0, count, "int32")
        players = jnp.arange(count)
        is_right = jax.random.bernoulli(fold(key, "clue"), self.clue_prob, (count,))
        others = (players[:, None] != players) & (players != spy)
        suspects = jnp.where(is_right & (players != spy), spy, _draw(others, fold(key, "suspect"))).astype("int32")
        zero, zeros = jnp.zeros((), "int32"), jnp.zeros(count, "int32")
        votes, num_votes = jnp.full(count, NOBODY, "int32"), jnp.zeros((count, count), "int32")
        state = HiddenSpyState(spy, suspects, votes, zero, num_votes, zeros, zeros, zeros)
        return state, self._time_step(state, jnp.zeros(()))

    def step(
        self, state: HiddenSpyState, action: dict[str, Int[Array, " player"]], key: Key[Array, ""]
    ) -> tuple[HiddenSpyState, TimeStep]:
        """Counts the votes, and sends everybody else on the mission."""
        count, players = self.num_players, jnp.arange(self.num_players)
        votes, may_sabotage = action[GROUP] % count, action[GROUP][state.spy] >= count
        if not self.spy_learns:
            scripted_vote = jax.random.categorical(fold(key, "vote"), jnp.where(players == state.spy, -jnp.inf, 0.0))
            votes = jnp.where(players == state.spy, scripted_vote, votes)
            may_sabotage = jax.random.bernoulli(fold(key, "sabotage"), self.sabotage_prob)
        ballots = votes[:, None] == players
        totals = jnp.sum(ballots, axis=0)
        absentee = _draw(totals == jnp.max(totals), fold(key, "tie"))
        accident = jax.random.bernoulli(fold(key, "accident"), self.accident_prob)
        failed = accident | (may_sabotage & (absentee != state.spy))
        is_absent = players == absentee
        next_state = HiddenSpyState(
            state.spy,
            state.suspects,
            votes.astype("int32"),
            state.time + 1,
            state.num_votes + ballots,
            state.num_failures + (failed & ~is_absent),
            state.num_absences + is_absent,
            state.num_absent_failures + (failed & is_absent),
        )
        return next_state, self._time_step(next_state, 1.0 - failed.astype("float32"))

    def beliefs(self, state: HiddenSpyState) -> Float[Array, "player candidate"]:
        """For each player the probability that each other player is the spy, if it is loyal itself.

        Exact by Bayes' rule, given its suspicion and all missions, if a spy sabotages as the script does. What the
        others' votes say of their suspicions is left out, as this depends on how they vote.
        """
        count, players = self.num_players, jnp.arange(self.num_players)
        is_suspect = state.suspects[:, None] == players
        clue = jnp.where(is_suspect, self.clue_prob, (1.0 - self.clue_prob) / (count - 2))
        fail_prob = 1.0 - (1.0 - self.accident_prob) * (1.0 - self.sabotage_prob)  # of a mission with the spy
        num_successes = state.time - state.num_absences - state.num_failures
        log_likelihood = (
            state.num_failures * jnp.log(fail_prob)
            + num_successes * jnp.log(1.0 - fail_prob)
            + state.num_absent_failures * jnp.log(self.accident_prob)
            + (state.num_absences - state.num_absent_failures) * jnp.log(1.0 - self.accident_prob)
        )
        logits = jnp.where(players[:, None] == players, -jnp.inf, log_likelihood + jnp.log(clue))
        return jax.nn.softmax(logits, axis=1)

    def _time_step(self, state: HiddenSpyState, success: Float[Array, ""]) -> TimeStep:
        count, players = self.num_players, jnp.arange(self.num_players)
        is_spy, over = players == state.spy, state.time >= self.num_rounds
        acts = jnp.broadcast_to(~over, (count,)) & (self.spy_learns | ~is_spy)
        votes_for_others = players[:, None] != players
        legal = jnp.tile(votes_for_others, 2) & (is_spy[:, None] | (jnp.arange(2 * count) < count))
        legal = legal if self.spy_learns else votes_for_others
        mask = jnp.where(acts[:, None], legal, jnp.arange(legal.shape[1]) == 0)
        reward = jnp.where(is_spy, jnp.where(state.time > 0, 1.0 - success, 0.0), success)
        outcomes = AgentOutcome(reward, jnp.zeros(count, bool))
        no = jnp.zeros((), bool)
        return TimeStep(
            {GROUP: self._observe(state)},
            success,
            over,
            no,
            {GROUP: mask},
            is_spy.astype("float32"),
            {GROUP: acts},
            agent_outcomes={GROUP: outcomes},
        )

    def _observe(self, state: HiddenSpyState) -> Float[Array, "player feature"]:
        count = self.num_players
        records = [state.num_votes.reshape(-1), state.num_failures, state.num_absences, state.num_absent_failures]
        last_votes = jax.nn.one_hot(state.votes, count).reshape(-1)
        public = jnp.concatenate([last_votes, jnp.concatenate([*records, state.time[None]]) / self.num_rounds])
        private = [jnp.eye(count), jax.nn.one_hot(state.suspects, count), jax.nn.one_hot(state.spy, count)[:, None]]
        if self.belief_visible:
            private.append(self.beliefs(state))
        if self.roles_visible:
            private.append(jnp.broadcast_to(jax.nn.one_hot(state.spy, count), (count, count)))
        return jnp.concatenate([*private, jnp.broadcast_to(public, (count, *public.shape))], axis=1)


def _draw(mask: Bool[Array, "*rows choice"], key: Key[Array, ""]) -> Int[Array, "*rows"]:
    """One of the choices of each row that are true in ``mask``, uniformly."""
    return jax.random.categorical(key, jnp.where(mask, 0.0, -jnp.inf)).astype("int32")
