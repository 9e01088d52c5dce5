"""Repeated rock, paper, scissors against an opponent from a pool of scripts; the opponent is an episode parameter.

Only the last round is observed, so the opponent can be identified only over time. It is drawn at the start, or by a
curriculum: ``DomainRandomization((("member", 0, 8),))``, or a smaller range.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Discrete, MultiDiscrete
from thespis.runtime.keys import fold

RANDOM_MEMBER, NO_ACTION, NUM_MEMBERS = -1, 3, 9


class RockPaperScissorsParams(eqx.Module):
    """Parameters of one episode: the opponent, a member of the pool.

    It is ``3 kind + shift``, or ``RANDOM_MEMBER`` to draw it at the start of the episode. Members 0 to 2 play
    ``shift``, 3 to 5 the learner's last action plus ``shift``, 6 to 8 their own last action plus ``shift``, modulo 3.
    In the first round all of them play ``shift``.
    """

    member: Int[Array, ""]


class RockPaperScissorsState(eqx.Module):
    """State of one episode: last actions (``NO_ACTION`` before the first round), rounds played, and opponent."""

    own_action: Int[Array, ""]
    opponent_action: Int[Array, ""]
    time: Int[Array, ""]
    member: Int[Array, ""]


class RockPaperScissors(eqx.Module):
    """Repeated rock, paper, scissors against a scripted opponent.

    Each of the actions 0, 1, 2 beats the one before it: the reward is 1 for a win, -1 for a loss. The observation is
    the learner's and the opponent's last action. The opponent follows its script, but plays uniformly at random with
    probability ``slip_prob``. Episodes are truncated after ``num_rounds`` rounds. ``member_visible``: the opponent is
    observed, too, as a third number.
    """

    num_rounds: int = eqx.field(static=True, default=20)
    slip_prob: float = eqx.field(static=True, default=0.3)
    member_visible: bool = eqx.field(static=True, default=False)

    @property
    def spec(self) -> EnvSpec:
        """Spaces, time limit and the opponent, random by default."""
        params = RockPaperScissorsParams(jnp.int32(RANDOM_MEMBER))
        sizes = (4, 4, NUM_MEMBERS) if self.member_visible else (4, 4)
        return EnvSpec("rivals", MultiDiscrete(sizes), Discrete(3), time_limit=self.num_rounds, params=params)

    def reset(self, params: RockPaperScissorsParams, key: Key[Array, ""]) -> tuple[RockPaperScissorsState, TimeStep]:
        """Starts before the first round."""
        no_action, random_member = jnp.int32(NO_ACTION), jax.random.randint(key, (), 0, NUM_MEMBERS)
        state = RockPaperScissorsState(
            no_action, no_action, jnp.int32(0), jnp.where(params.member == RANDOM_MEMBER, random_member, params.member)
        )
        return state, self._time_step(state, jnp.zeros(()))

    def step(
        self, state: RockPaperScissorsState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[RockPaperScissorsState, TimeStep]:
        """Play one round against the scripted rival."""
        slips, random_action = (
            jax.random.bernoulli(fold(key, "slip"), self.slip_prob),
            jax.random.randint(fold(key, "lot"), (), 0, 3),
        )
        opponent_action = jnp.where(slips, random_action, scripted_action(state)).astype("int32")
        next_state = RockPaperScissorsState(action.astype("int32"), opponent_action, state.time + 1, state.member)
        reward = jnp.array([0.0, 1.0, -1.0])[(action - opponent_action) % 3]
        return next_state, self._time_step(next_state, reward)

    def optimal_return(self) -> float:
        """Expected return of a learner that knows the opponent."""
        return self.num_rounds * (1 - self.slip_prob)

    def _time_step(self, match: RockPaperScissorsState, won: Float[Array, ""]) -> TimeStep:
        no = jnp.zeros((), bool)
        visible = [match.own_action, match.opponent_action] + ([match.member] if self.member_visible else [])
        return TimeStep(jnp.stack(visible), won, no, match.time >= self.num_rounds)


def scripted_action(state: RockPaperScissorsState) -> Int[Array, ""]:
    """Return the action of the opponent's script."""
    kind, shift = state.member // 3, state.member % 3
    base = jnp.stack([jnp.zeros((), "int32"), state.own_action, state.opponent_action])[kind]
    return (jnp.where(base == NO_ACTION, 0, base) + shift) % 3
