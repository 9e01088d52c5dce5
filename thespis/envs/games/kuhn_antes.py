"""Kuhn poker with unequal antes, in which the rules favor one player.

Three cards, one bet of a chip (Kuhn 1950). Whoever wins gets what the other has paid: its ante, and a chip if a bet was
called. With antes :math:`a_0` and :math:`a_1` every payoff of player 0 is that of Kuhn poker with two equal antes of
:math:`(a_0 + a_1) / 2`, plus :math:`(a_1 - a_0) / 2`. The equilibria are the same: only the players' values differ.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.envs.games.pgx import Pgx, PgxState


class KuhnAntes(Pgx):
    """Kuhn poker in which the players pay ``antes``, in chips; moves are bet or call (0), and pass or fold (1).

    Raises:
        UserError: in use, if pgx is missing.
    """

    name: str = eqx.field(static=True, default="kuhn_poker", init=False)
    antes: tuple[int, int] = eqx.field(static=True, default=(1, 1))

    def rewards(self, state: PgxState) -> Float[Array, " players"]:
        """At the end the chips won: the other's ante, or minus the own one, and a chip more if a bet was called."""
        equal = super().rewards(state)  # with antes of one chip
        antes, called = jnp.array(self.antes, "float32"), jnp.abs(equal) - 1.0
        return jnp.where(equal == 0, 0.0, jnp.where(equal > 0, antes[::-1] + called, -antes - called))
