"""A game between a person at the terminal and a player, who sits in all other seats."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from thespis.arena.matches import answer, remember
from thespis.arena.players import Player
from thespis.cli.boards import DRAWINGS, Numbers
from thespis.cli.output import Output
from thespis.core.contracts import Game
from thespis.core.keys import fold, key_of
from thespis.core.records import View
from thespis.envs.games.everyone import SEATS, Everyone

LINE = 88  # characters


class Match:
    """One game, the person in ``seat``; ``name`` is what the player is called."""

    def __init__(self, game: Game, player: Player, name: str, seat: int, seed: int, out: Output):
        self.game, self.player, self.name, self.seat, self.out = game, player, name, seat, out
        self.drawing = DRAWINGS.get(game.rules.name, Numbers())
        self._key = key_of(seed)
        self._play = jax.jit(game.play)
        self._look = jax.jit(lambda position: (Everyone(game).view(position), game.over(position)))
        self._payoff = jax.jit(game.payoff)

    def run(self) -> np.ndarray:
        """Play to the end and return the payoffs ``[seat]``. Raises ``EOFError`` when the person leaves."""
        position, memory = jax.jit(self.game.start)(fold(self._key, "start")), remember(self.player, 1)
        won, tick = np.zeros(self.game.rules.players), 0
        while True:
            view, over = self._look(position)
            if over:
                break
            moves, mover = self._moves(view)
            view_of_one: Any = jax.tree.map(lambda x: x[None], view)
            asked, memory = answer(self.player, memory, view_of_one, fold(self._key, "player"), np.int32(tick))
            if mover == self.seat:
                self._draw(view)
                action = self._asked(moves)
            else:
                action = int(asked[SEATS][0, mover])
                said = next(name for name, move in moves.items() if move == action)
                self.out.say(f"{self.name} plays {said}", markup=False)
            position = self._play(position, np.int32(action), fold(self._key, "step", tick))
            won, tick = won + np.asarray(self._payoff(position)), tick + 1
        self._end(view, won)
        return won

    def _moves(self, view: View) -> tuple[dict[str, int], int]:
        """Moves by name, and whose turn it is."""
        alive: Any = view.alive
        mover = int(np.argmax(alive[SEATS]))
        legal = np.flatnonzero(np.asarray(view.legal[SEATS][mover])).tolist()
        return self.drawing.moves(self._seen(view, mover), legal), mover

    def _seen(self, view: View, seat: int) -> np.ndarray:
        seen = view.observation[SEATS]
        return np.asarray(seen["seen"][seat]) if isinstance(seen, dict) and "seen" in seen else np.zeros(0)

    def _draw(self, view: View) -> None:
        if board := self.drawing.board(self._seen(view, self.seat), self.seat):
            self.out.say(f"\n{board}\n", markup=False)

    def _asked(self, moves: dict[str, int]) -> int:
        """A legal move of the person's, asked for until there is one."""
        known = ", ".join(moves)
        known = known if len(known) <= LINE else f"{known[:LINE].rpartition(',')[0]} ... ({len(moves)} moves)"
        prompt = f"your move ({known}): "
        while True:
            typed = self.out.ask(prompt).strip().lower()
            if typed in moves:
                return moves[typed]
            self.out.say(f"{typed or 'nothing'} is no legal move: type one of {known}", markup=False)

    def _end(self, view: View, won: np.ndarray) -> None:
        if self.game.rules.perfect:
            self._draw(view)
        others = [seat for seat in range(len(won)) if seat != self.seat]
        if hands := [hand for seat in others if (hand := self.drawing.hand(self._seen(view, seat)))]:
            self.out.say(f"{self.name} held {', '.join(hands)}", markup=False)
        mine = won[self.seat]
        result = "you win" if mine > max(won[others]) else "you lose" if mine < max(won[others]) else "a draw"
        self.out.say(f"{result} ({mine:+g})".replace("-", "−").replace("+0", "0"))
