"""Text rendering of games for a human player: board and names of moves, from the player's observation alone."""

from __future__ import annotations

from typing import Protocol

import numpy as np

MARKS = "XO"
CARDS = "JQK"


class GameRenderer(Protocol):
    """Protocol of the text rendering of a game; ``observation`` is the player's, as from the game's ``observe``."""

    def board(self, observation: np.ndarray, player: int) -> str:
        """The current board as text; empty if there is none."""
        ...

    def hand(self, observation: np.ndarray) -> str:
        """The player's hidden cards, shown after the game; empty if there are none."""
        ...

    def legal_moves(self, observation: np.ndarray, legal: list[int]) -> dict[str, int]:
        """Legal moves by name, when it is this player's turn."""
        ...


class TicTacToeRenderer:
    """Tic-tac-toe: nine cells, numbered from 1 in reading order."""

    def board(self, observation: np.ndarray, player: int) -> str:
        """Marks, and the numbers of free cells."""
        marks = _marks(observation, player).ravel()
        cells = [mark or str(number) for number, mark in enumerate(marks, 1)]
        return "\n---+---+---\n".join(f" {a} | {b} | {c}" for a, b, c in np.reshape(cells, (3, 3)))

    def hand(self, observation: np.ndarray) -> str:
        """Empty: there is no hidden information."""
        return ""

    def legal_moves(self, observation: np.ndarray, legal: list[int]) -> dict[str, int]:
        """Free cells by number."""
        return {str(cell + 1): cell for cell in legal}


class ConnectFourRenderer:
    """Connect Four: columns, numbered from 1, into which marks fall."""

    def board(self, observation: np.ndarray, player: int) -> str:
        """Rows from the top, with a dot for a free cell."""
        marks = _marks(observation, player)
        numbers = " ".join(str(column) for column in range(1, marks.shape[1] + 1))
        return "\n".join([numbers, *(" ".join(mark or "." for mark in row) for row in marks)])

    def hand(self, observation: np.ndarray) -> str:
        """Empty: there is no hidden information."""
        return ""

    def legal_moves(self, observation: np.ndarray, legal: list[int]) -> dict[str, int]:
        """Legal moves: numbers of the columns that are not full."""
        return {str(column + 1): column for column in legal}


class KuhnPokerRenderer:
    """Kuhn poker: one card each and one bet, in chips on top of the ante."""

    def board(self, observation: np.ndarray, player: int) -> str:
        """The player's card, and the bets of both players."""
        mine, theirs = np.argmax(observation[3:5]), np.argmax(observation[5:7])
        return (
            f"you hold {CARDS[np.argmax(observation[:3])]}; chips besides antes: yours {mine}, the opponent's {theirs}"
        )

    def hand(self, observation: np.ndarray) -> str:
        """The card that the player holds, as text."""
        return CARDS[np.argmax(observation[:3])]

    def legal_moves(self, observation: np.ndarray, legal: list[int]) -> dict[str, int]:
        """``bet`` and ``check``, or after a bet ``call`` and ``fold``."""
        faced = observation[6] > observation[4]
        return {"call": 0, "fold": 1} if faced else {"bet": 0, "check": 1}


class LeducHoldemRenderer:
    """Leduc hold'em: one card each and a public one from the second round on; chips include the antes."""

    def board(self, observation: np.ndarray, player: int) -> str:
        """The player's card, the public card, and the chips of both players."""
        own, other = self._chips(observation)
        public = f", the public card is {CARDS[np.argmax(observation[3:6])]}" if observation[3:6].any() else ""
        return f"you hold {CARDS[np.argmax(observation[:3])]}{public}; chips: yours {own}, the opponent's {other}"

    def hand(self, observation: np.ndarray) -> str:
        """The card that the player holds, as text."""
        return CARDS[np.argmax(observation[:3])]

    def legal_moves(self, observation: np.ndarray, legal: list[int]) -> dict[str, int]:
        """``check`` or ``call``, ``raise``, ``fold``."""
        own_chips, opponent_chips = self._chips(observation)
        names = ("call" if opponent_chips > own_chips else "check", "raise", "fold")
        return {names[move]: move for move in legal}

    def _chips(self, observation: np.ndarray) -> tuple[int, int]:
        return int(np.argmax(observation[6:20])), int(np.argmax(observation[20:34]))


class DefaultRenderer:
    """Renderer of other games: no board, and moves by their action number."""

    def board(self, observation: np.ndarray, player: int) -> str:
        """Empty: other games have no text rendering."""
        return ""

    def hand(self, observation: np.ndarray) -> str:
        """Empty: other games have no text rendering."""
        return ""

    def legal_moves(self, observation: np.ndarray, legal: list[int]) -> dict[str, int]:
        """Legal moves by number, from 0."""
        return {str(move): move for move in legal}


RENDERERS: dict[str, GameRenderer] = {
    "pgx:tic_tac_toe": TicTacToeRenderer(),
    "pgx:connect_four": ConnectFourRenderer(),
    "pgx:kuhn_poker": KuhnPokerRenderer(),
    "pgx:leduc_holdem": LeducHoldemRenderer(),
}
"""Renderers by name of the game; other games use :class:`DefaultRenderer`."""


def _marks(observation: np.ndarray, player: int) -> np.ndarray:
    """Marks, ``X`` for the first player and ``O`` for the second; observation planes are own and opponent's marks."""
    is_own, is_opponents = observation[..., 0] > 0, observation[..., 1] > 0
    return np.where(is_own, MARKS[player], np.where(is_opponents, MARKS[1 - player], ""))
