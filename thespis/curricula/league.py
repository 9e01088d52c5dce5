"""A league: main agents, exploiters of theirs and exploiters of all learn at once, and meet each other.

Main agents learn to beat everybody, their own past and that of the exploiters included. A main exploiter learns to beat
the main agents as they are now, a league exploiter everybody who ever joined; what they find, main agents then meet.
Every ``every`` steps a copy of each learner joins (the oldest leave), and a main exploiter begins anew; a league
exploiter does every ``patience`` times, a main agent never.

Source: Vinyals et al. 2019 (AlphaStar); whom each learner meets: :mod:`~thespis.curricula.matchmaking`. Differs:
learners begin with nothing, and the first copies of all play at random, where theirs had learnt from people; copies
join by steps alone; a league exploiter begins anew in turn, and not by lot (1/4); main agents of now are met as they
played one rollout ago; the oldest copies leave.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from thespis.core.contracts import Environment, ForMany, Method
from thespis.core.errors import UserError
from thespis.core.feeds import Rollouts
from thespis.core.keys import per_index
from thespis.core.records import Citation, EnvSpec, Outcomes, Report
from thespis.curricula.matchmaking import Role, Roll, chances
from thespis.curricula.opponents import counted
from thespis.curricula.seating import game_of
from thespis.curricula.standings import Standings, begin
from thespis.envs.games.tables import LEARNERS, Tables
from thespis.envs.games.versus import ANY, Opponents, Versus
from thespis.learners.crowd import EachAlone
from thespis.learners.sharing import Renewed, period


class League(eqx.Module):
    """Learners number 0 to ``mains - 1`` are main agents, then come main exploiters, then league exploiters."""

    mains: int = eqx.field(static=True, default=1)
    """Main agents, at least 1; what a run reports is the first of them."""
    main_exploiters: int = eqx.field(static=True, default=1)
    """Learners that exploit the main agents of now."""
    league_exploiters: int = eqx.field(static=True, default=1)
    """Learners that exploit all copies."""
    copies: int = eqx.field(static=True, default=8)
    """Generations that are kept, of all learners."""
    every: int = eqx.field(static=True, default=50_000)
    """Environment steps of a seed between two generations, rounded up to whole rollouts."""
    patience: int = eqx.field(static=True, default=4)
    """Generations after which a league exploiter begins anew."""
    past: float = 0.5
    """Share of a main agent's games against copies of anybody, the hard first."""
    checked: float = 0.15
    """Share of a main agent's games against exploiters and past selves that it loses to; the rest is self-play."""
    rate: float = 0.02
    """Weight of one game in the running points, in (0, 1]."""

    name: ClassVar[str] = "league"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Grandmaster level in StarCraft II", "Vinyals et al.", 2019, "10.1038/s41586-019-1724-z"),
    )

    @property
    def roll(self) -> Roll:
        """Who learns. Raises ``UserError`` for a league without a main agent, or with room for one generation."""
        counts = (self.mains, self.main_exploiters, self.league_exploiters)
        if min(counts) < 0 or self.mains < 1 or self.copies < 2 or min(self.every, self.patience) < 1:
            raise UserError(
                "a league needs a main agent and 2 copies of each, and waits 1 step and 1 generation or more"
            )
        return Roll(tuple(role for role, count in zip(Role, counts, strict=True) for _ in range(count)), self.copies)

    def learner(self, method: Method) -> Method:
        """Many, each by itself; exploiters are renewed. Raises ``UserError`` unless it learns from rollouts."""
        if isinstance(method, ForMany) or not isinstance(method.feed, Rollouts):
            raise UserError(f"a league trains methods for one agent that learn from rollouts (ppo): not {method.name}")
        many: Any = EachAlone(method, Renewed(self.every, self._times))
        return many

    def world(self, environment: Environment, method: Method) -> Environment:
        """A table for each learner. Raises ``UserError`` if ``environment`` is no game of several."""
        one: Any = method
        return Tables(Versus(game_of(environment), one.method), len(self.roll.roles))

    def player(self, method: Method, states: PyTree, member: int) -> tuple[Method, PyTree]:
        """Learner number ``member``. Raises ``UserError`` if there is none."""
        if member >= len(self.roll.roles):
            raise UserError(f"this league has learners #0 to #{len(self.roll.roles) - 1}: there is no #{member}")
        many: Any = method
        return many.method, jax.tree.map(lambda x: x[:, member], states.of[LEARNERS].now)

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> Standings:
        """Main agents that are not known yet, and a first generation, all of which play at random."""
        if not isinstance(spec.params, Opponents) or not spec.groups:
            raise UserError(f"{spec.name} has no tables for a league")
        return self._settled(begin(self.roll, jax.tree.map(lambda x: x[0], spec.params.policy)))

    def draw(self, state: Standings, key: Key[Array, ""], n: int) -> Opponents:
        """Opponents and seats of all learners in ``n`` episodes."""
        logits = jnp.log(state.chances)
        member = jax.vmap(lambda k: jax.random.categorical(k, logits))(per_index(key, n)).astype("int32")
        policies = jax.tree.map(lambda x: x[member], state.policies)
        return Opponents(policies, state.beginners[member], jnp.full(member.shape, ANY, "int32"), member)

    def update(self, state: Standings, outcomes: Outcomes, key: Key[Array, ""]) -> tuple[Standings, Report]:
        """Counts the points of the games that ended, and lets copies join when it is time."""
        each: Any = outcomes.each
        count = jax.vmap(counted, in_axes=(0, 2, 2, None, None))
        known = count(state.points, outcomes.params.member, each[LEARNERS], outcomes.ended, self.rate)
        report = state.report(known)
        now = outcomes.policy.of[LEARNERS]
        state = state.met(known, now)
        joins = state.rollouts % period(self.every, outcomes.ended.size) == 0
        again = jnp.stack([state.generations % times == 0 if times else jnp.zeros((), bool) for times in self._times])
        joined = state.joined(now, again)
        return self._settled(jax.tree.map(lambda new, old: jnp.where(joins, new, old), joined, state)), report

    @property
    def _times(self) -> tuple[int, ...]:
        """For each learner, after how many generations it begins anew; 0: never."""
        times = {Role.MAIN: 0, Role.MAIN_EXPLOITER: 1, Role.LEAGUE_EXPLOITER: self.patience}
        return tuple(times[role] for role in self.roll.roles)

    def _settled(self, state: Standings) -> Standings:
        """With the chances that follow from what is known."""
        learners = range(len(self.roll.roles))
        rows = [chances(self.roll, i, state.there, state.points[i], self.past, self.checked) for i in learners]
        return eqx.tree_at(lambda league: league.chances, state, jnp.stack(rows))
