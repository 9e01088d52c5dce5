"""Rock, paper, scissors for many rounds against a rival from a pool of scripts, who is a parameter of the episode.

Nothing but the last round is seen, so who the rival is shows only over time. A curriculum draws it:
``DomainRandomisation((("member", 0, 8),))``, or fewer of them.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.core.keys import fold
from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Discrete, MultiDiscrete

ANY, NOTHING, MEMBERS = -1, 3, 9


class Rival(eqx.Module):
    """Who the rival is: ``3 kind + shift``, or ``ANY`` for a lot drawn as the episode begins.

    Members 0 to 2 play ``shift``, 3 to 5 the learner's last choice plus ``shift``, 6 to 8 their own plus ``shift``,
    modulo 3. In the first round all of them play ``shift``.
    """

    member: Int[Array, ""]


class Match(eqx.Module):
    """One episode under way: the last choices, ``NOTHING`` before the first round."""

    mine: Int[Array, ""]
    theirs: Int[Array, ""]
    time: Int[Array, ""]
    member: Int[Array, ""]


class Rivals(eqx.Module):
    """Choices 0, 1, 2, each of which beats the one before it: 1 for a win, -1 for a loss.

    Seen are the learner's and the rival's last choice. The rival does what its script says, but with a chance of
    ``slip`` anything at random. Episodes are cut after ``rounds``.
    """

    rounds: int = eqx.field(static=True, default=20)
    slip: float = eqx.field(static=True, default=0.3)

    @property
    def spec(self) -> EnvSpec:
        """Spaces, limit and the rival, a lot by default."""
        params = Rival(jnp.int32(ANY))
        return EnvSpec("rivals", MultiDiscrete((4, 4)), Discrete(3), time_limit=self.rounds, params=params)

    def reset(self, params: Rival, key: Key[Array, ""]) -> tuple[Match, TimeStep]:
        """Before the first round."""
        nothing, lot = jnp.int32(NOTHING), jax.random.randint(key, (), 0, MEMBERS)
        match = Match(nothing, nothing, jnp.int32(0), jnp.where(params.member == ANY, lot, params.member))
        return match, self._answer(match, jnp.zeros(()))

    def step(self, state: Match, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[Match, TimeStep]:
        """One round."""
        slips, lot = jax.random.bernoulli(fold(key, "slip"), self.slip), jax.random.randint(fold(key, "lot"), (), 0, 3)
        theirs = jnp.where(slips, lot, scripted(state)).astype("int32")
        match = Match(action.astype("int32"), theirs, state.time + 1, state.member)
        won = jnp.array([0.0, 1.0, -1.0])[(action - theirs) % 3]
        return match, self._answer(match, won)

    def _answer(self, match: Match, won: Float[Array, ""]) -> TimeStep:
        no = jnp.zeros((), bool)
        return TimeStep(jnp.stack([match.mine, match.theirs]), won, no, match.time >= self.rounds)


def scripted(match: Match) -> Int[Array, ""]:
    """What the rival's script says."""
    kind, shift = match.member // 3, match.member % 3
    base = jnp.stack([jnp.zeros((), "int32"), match.mine, match.theirs])[kind]
    return (jnp.where(base == NOTHING, 0, base) + shift) % 3
