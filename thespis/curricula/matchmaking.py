"""Whom each learner of a league meets: main agents, exploiters of theirs, and exploiters of the whole league.

Source: the matchmaking of Vinyals et al. 2019 (methods and published pseudo-code). There a learner plays on against the
one it drew; here chances are computed of the same rules. Differs: where it is asked whether a main agent has forgotten
to win, members against which it never stopped losing count too.
"""

from __future__ import annotations

import dataclasses
import enum

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from thespis.curricula.choosing import weighted

LOST, FORGOTTEN, HOPELESS = 0.3, 0.7, 0.1
"""Points below which an exploiter is to be answered or a main agent is too strong for another, a past self is to be
met again, and an exploiter looks for an easier main agent."""

Number = float | Array
Points = Float[Array, " member"]
There = Bool[Array, " member"]


class Role(enum.Enum):
    """What a learner is for."""

    MAIN = "main"
    MAIN_EXPLOITER = "main_exploiter"
    LEAGUE_EXPLOITER = "league_exploiter"


@dataclasses.dataclass(frozen=True)
class Roll:
    """Who learns, and how the members that they meet are laid out.

    Members are the main agents as they play now, then ``copies`` generations of all learners. Static.
    """

    roles: tuple[Role, ...]
    copies: int

    @property
    def mains(self) -> int:
        """How many main agents there are; they are the first of the learners."""
        return self.roles.count(Role.MAIN)

    @property
    def size(self) -> int:
        """Places for members."""
        return self.mains + self.copies * len(self.roles)

    @property
    def learner(self) -> np.ndarray:
        """Of whom each member is a copy, ``[member]``."""
        return np.concatenate([np.arange(self.mains), np.tile(np.arange(len(self.roles)), self.copies)])

    @property
    def past(self) -> np.ndarray:
        """Which members are copies, and not main agents of now, ``[member]``."""
        return np.arange(self.size) >= self.mains

    def place(self, generation: Array) -> Array:
        """Where the first copy of a generation lies."""
        return self.mains + generation % self.copies * len(self.roles)


def chances(roll: Roll, i: int, there: There, points: Points, past: Number, checked: Number) -> Points:
    """How likely learner ``i`` meets each member, by its points against them.

    ``there``: who has joined. Main agents meet copies of anybody, the hard first, with chance ``past``; with chance
    ``checked`` whoever they lose to, of exploiters of theirs and of main agents' past; and else a main agent of now.
    """
    old = there & roll.past
    match roll.roles[i]:
        case Role.LEAGUE_EXPLOITER:
            return _unbeaten(old, points)
        case Role.MAIN_EXPLOITER:
            return _mean([_now(roll, j, old, points, HOPELESS) for j in range(roll.mains)])
        case Role.MAIN:
            rest = [_of_main(roll, j, old, points, past, checked) for j in range(roll.mains)]
            return past * _hard(old, points) + _mean(rest)


def _of_main(roll: Roll, j: int, old: There, points: Points, past: Number, checked: Number) -> Points:
    """What is left of a main agent's games, main agent ``j`` drawn."""
    play = _now(roll, j, old, points, LOST)
    own, exploiters = old & (roll.learner == j), old & _exploits(roll)
    look = jnp.where(_least(own, points) < FORGOTTEN, _hard(own, points), play)
    if Role.MAIN_EXPLOITER in roll.roles:
        look = jnp.where(_least(exploiters, points) < LOST, _hard(exploiters, points), look)
    return checked * look + (1.0 - past - checked) * play


def _now(roll: Roll, j: int, old: There, points: Points, least: float) -> Points:
    """Main agent ``j`` as it plays now; its past, even games first, where too little is won of it."""
    now = jnp.asarray(np.arange(roll.size) == j, "float32")
    return jnp.where(points[j] > least, now, _even(old & (roll.learner == j), points))


def _exploits(roll: Roll) -> np.ndarray:
    """Which members are, or were, exploiters of main agents."""
    return np.array([roll.roles[i] is Role.MAIN_EXPLOITER for i in roll.learner])


def _hard(there: There, points: Points) -> Points:
    """The more often, the less is won."""
    return weighted(there, (1.0 - points) ** 2)


def _even(there: There, points: Points) -> Points:
    """The more often, the closer to even games are."""
    return weighted(there, points * (1.0 - points))


def _unbeaten(there: There, points: Points) -> Points:
    """All alike that win half of the games or more; the others the less often, the weaker they are."""
    return weighted(there, jnp.minimum(0.5, 1.0 - points))


def _least(there: There, points: Points) -> Array:
    return jnp.min(jnp.where(there, points, 1.0))


def _mean(chances: list[Points]) -> Points:
    return jnp.mean(jnp.stack(chances), axis=0)
