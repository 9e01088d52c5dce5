"""Kuhn poker with unequal antes, in which the rules favor one player.

Three cards, one bet of a chip (Kuhn 1950). Whoever wins gets what the other has paid: its ante, and a chip if a bet was
called. With antes :math:`a_0` and :math:`a_1` every payoff of player 0 is that of Kuhn poker with two equal antes of
:math:`(a_0 + a_1) / 2`, plus :math:`(a_1 - a_0) / 2`. The equilibria are the same: only the players' values differ.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.contracts import GameSpec
from thespis.envs.games.pgx import Pgx, PgxState

_KUHN = Pgx("kuhn_poker")


class KuhnAntes(eqx.Module):
    """Kuhn poker in which the players pay ``antes``, in chips.

    Raises:
        UserError: in use, if pgx is missing.
    """

    antes: tuple[int, int] = eqx.field(static=True, default=(1, 1))

    @property
    def spec(self) -> GameSpec:
        """Players, spaces and limits of Kuhn poker."""
        return _KUHN.spec

    def init(self, key: Key[Array, ""]) -> PgxState:
        """The initial state, with cards dealt."""
        return _KUHN.init(key)

    def initial_states(self) -> tuple[Float[np.ndarray, " opening"], PgxState]:
        """Every deal with its probability."""
        return _KUHN.initial_states()

    def step(self, state: PgxState, action: Int[Array, ""], key: Key[Array, ""]) -> PgxState:
        """The state after a bet or call (0), or a pass or fold (1)."""
        return _KUHN.step(state, action, key)

    def current_player(self, state: PgxState) -> Int[Array, ""]:
        """The player to move."""
        return _KUHN.current_player(state)

    def observe(self, state: PgxState, player: Int[Array, ""]) -> PyTree:
        """What a player knows: its number, its card and all moves."""
        return _KUHN.observe(state, player)

    def action_mask(self, state: PgxState) -> Bool[Array, " actions"]:
        """Legal actions of the player to move."""
        return _KUHN.action_mask(state)

    def is_terminal(self, state: PgxState) -> Bool[Array, ""]:
        """Whether the game has ended."""
        return _KUHN.is_terminal(state)

    def rewards(self, state: PgxState) -> Float[Array, " players"]:
        """At the end the chips won: the other's ante, or minus the own one, and a chip more if a bet was called."""
        equal = _KUHN.rewards(state)  # with antes of one chip
        antes, called = jnp.array(self.antes, "float32"), jnp.abs(equal) - 1.0
        return jnp.where(equal == 0, 0.0, jnp.where(equal > 0, antes[::-1] + called, -antes - called))
