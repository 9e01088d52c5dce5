"""A game as a world of many agents: one agent a seat, all of them the learner's.

An agent decides when it is its move; until then it is not ``alive``, and the one thing that it may do means nothing.
What the run reports as return is what the first seat won.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.agents import Group
from thespis.core.contracts import Game
from thespis.core.records import Each, EnvSpec, TimeStep, View
from thespis.core.spaces import Discrete, dict_space

SEATS = "seats"


class Everyone(eqx.Module):
    """All seats of ``game``."""

    game: Game

    @property
    def spec(self) -> EnvSpec:
        """One group, of as many agents as there are seats."""
        rules = self.game.rules
        return EnvSpec(
            name=rules.name,
            observation=dict_space(**{SEATS: rules.observation}),
            action=dict_space(**{SEATS: Discrete(rules.actions)}),
            legal=True,
            time_limit=rules.longest,
            groups=(Group(SEATS, rules.players),),
            game=self.game,
        )

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[PyTree, TimeStep]:
        """A fresh game."""
        position = self.game.start(key)
        return position, self._step(position, jnp.zeros(self.game.rules.players))

    def step(self, state: PyTree, action: dict[str, Int[Array, " player"]], key: Key[Array, ""]):
        """The move of the one whose turn it is; the others' actions are not looked at."""
        position = self.game.play(state, action[SEATS][self.game.player(state)], key)
        return position, self._step(position, self.game.payoff(position))

    def view(self, position: PyTree) -> View:
        """What the players see, and what they may do."""
        game, seats = self.game, jnp.arange(self.game.rules.players)
        to_move = (seats == game.player(position)) & ~game.over(position)
        waiting = jnp.arange(game.rules.actions) == 0
        return View(
            {SEATS: jax.vmap(lambda seat: game.observe(position, seat))(seats)},
            {SEATS: jnp.where(to_move[:, None], game.legal(position), waiting)},
            {SEATS: to_move},
            position if game.rules.perfect else None,
        )

    def _step(self, position: PyTree, payoff: Array) -> TimeStep:
        view, over = self.view(position), self.game.over(position)
        each = {SEATS: Each(payoff, jnp.broadcast_to(over, payoff.shape))}
        no = jnp.zeros((), bool)
        return TimeStep(
            view.observation, payoff[0], over, no, view.legal, alive=view.alive, position=view.position, each=each
        )
