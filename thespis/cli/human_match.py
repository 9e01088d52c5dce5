"""Interactive game at the terminal between a human and a player, which plays all other seats."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from thespis.arena.matches import init_memory, player_act
from thespis.arena.players import Player
from thespis.cli.board_text import RENDERERS, DefaultRenderer
from thespis.cli.output import CommandOutput
from thespis.core.contracts import Game
from thespis.core.records import View
from thespis.envs.games.self_play import PLAYER_GROUP, SelfPlayEnv
from thespis.runtime.keys import fold, seed_key

LINE_WIDTH = 88  # characters


class HumanMatch:
    """One game with the human in ``seat`` against ``opponent``."""

    def __init__(self, game: Game, opponent: Player, opponent_name: str, seat: int, seed: int, out: CommandOutput):
        self.game, self.opponent, self.opponent_name, self.seat, self.out = game, opponent, opponent_name, seat, out
        self.renderer = RENDERERS.get(game.spec.name, DefaultRenderer())
        self._key = seed_key(seed)
        self._play = jax.jit(game.step)
        self._look = jax.jit(lambda position: (SelfPlayEnv(game).view(position), game.is_terminal(position)))
        self._payoff = jax.jit(game.rewards)

    def run(self) -> np.ndarray:
        """Play to the end and return the payoffs ``[seat]``. Raises ``EOFError`` at the end of input."""
        position, memory = jax.jit(self.game.init)(fold(self._key, "start")), init_memory(self.opponent, 1)
        payoffs, tick = np.zeros(self.game.spec.num_players), 0
        while True:
            view, done = self._look(position)
            if done:
                break
            moves, current_player = self._legal_moves(view)
            batched_view: Any = jax.tree.map(lambda x: x[None], view)
            opponent_actions, memory = player_act(
                self.opponent, memory, batched_view, fold(self._key, "player"), np.int32(tick)
            )
            if current_player == self.seat:
                self._render(view)
                action = self._prompt_move(moves)
            else:
                action = int(opponent_actions[PLAYER_GROUP][0, current_player])
                move_name = next(name for name, move in moves.items() if move == action)
                self.out.print(f"{self.opponent_name} plays {move_name}", markup=False)
            position = self._play(position, np.int32(action), fold(self._key, "step", tick))
            payoffs, tick = payoffs + np.asarray(self._payoff(position)), tick + 1
        self._print_result(view, payoffs)
        return payoffs

    def _legal_moves(self, view: View) -> tuple[dict[str, int], int]:
        """Legal moves by name, and the player to move."""
        alive: Any = view.alive
        current_player = int(np.argmax(alive[PLAYER_GROUP]))
        legal = np.flatnonzero(np.asarray(view.action_mask[PLAYER_GROUP][current_player])).tolist()
        return self.renderer.legal_moves(self._observation(view, current_player), legal), current_player

    def _observation(self, view: View, seat: int) -> np.ndarray:
        observation = view.observation[PLAYER_GROUP]
        return (
            np.asarray(observation["seen"][seat])
            if isinstance(observation, dict) and "seen" in observation
            else np.zeros(0)
        )

    def _render(self, view: View) -> None:
        if board := self.renderer.board(self._observation(view, self.seat), self.seat):
            self.out.print(f"\n{board}\n", markup=False)

    def _prompt_move(self, moves: dict[str, int]) -> int:
        """Read a legal move from the terminal, repeating the prompt until there is one."""
        names = ", ".join(moves)
        names = (
            names if len(names) <= LINE_WIDTH else f"{names[:LINE_WIDTH].rpartition(',')[0]} ... ({len(moves)} moves)"
        )
        prompt = f"your move ({names}): "
        while True:
            typed = self.out.input(prompt).strip().lower()
            if typed in moves:
                return moves[typed]
            self.out.print(f"{typed or 'nothing'} is not a legal move: type one of {names}", markup=False)

    def _print_result(self, view: View, payoffs: np.ndarray) -> None:
        if self.game.spec.perfect_information:
            self._render(view)
        opponents = [seat for seat in range(len(payoffs)) if seat != self.seat]
        if hands := [hand for seat in opponents if (hand := self.renderer.hand(self._observation(view, seat)))]:
            self.out.print(f"{self.opponent_name} held {', '.join(hands)}", markup=False)
        payoff = payoffs[self.seat]
        result = (
            "you win"
            if payoff > max(payoffs[opponents])
            else "you lose"
            if payoff < max(payoffs[opponents])
            else "a draw"
        )
        self.out.print(f"{result} ({payoff:+g})".replace("-", "−").replace("+0", "0"))
