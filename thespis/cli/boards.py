"""Games as text: what a player sees, and what its moves are called. Drawn from the player's observation alone."""

from __future__ import annotations

from typing import Protocol

import numpy as np

MARKS = "XO"
CARDS = "JQK"


class Drawing(Protocol):
    """How one game is shown to the one in ``seat``; ``seen`` is what it sees, as the game's ``observe`` tells it."""

    def board(self, seen: np.ndarray, seat: int) -> str:
        """The game as it stands, empty if it cannot be drawn."""
        ...

    def hand(self, seen: np.ndarray) -> str:
        """What the others did not see, told when the game is over; empty if there is nothing."""
        ...

    def moves(self, seen: np.ndarray, legal: list[int]) -> dict[str, int]:
        """Legal moves by what they are called, when it is this player's turn."""
        ...


class Cells:
    """Nine cells, numbered from 1 in reading order."""

    def board(self, seen: np.ndarray, seat: int) -> str:
        """Marks, and the numbers of free cells."""
        marks = _marks(seen, seat).ravel()
        cells = [mark or str(number) for number, mark in enumerate(marks, 1)]
        return "\n---+---+---\n".join(f" {a} | {b} | {c}" for a, b, c in np.reshape(cells, (3, 3)))

    def hand(self, seen: np.ndarray) -> str:
        """Nothing is hidden."""
        return ""

    def moves(self, seen: np.ndarray, legal: list[int]) -> dict[str, int]:
        """Cells by number."""
        return {str(cell + 1): cell for cell in legal}


class Columns:
    """Columns, numbered from 1, into which marks fall."""

    def board(self, seen: np.ndarray, seat: int) -> str:
        """Rows from the top, a dot for what is free."""
        marks = _marks(seen, seat)
        numbers = " ".join(str(column) for column in range(1, marks.shape[1] + 1))
        return "\n".join([numbers, *(" ".join(mark or "." for mark in row) for row in marks)])

    def hand(self, seen: np.ndarray) -> str:
        """Nothing is hidden."""
        return ""

    def moves(self, seen: np.ndarray, legal: list[int]) -> dict[str, int]:
        """Columns by number."""
        return {str(column + 1): column for column in legal}


class Kuhn:
    """One card each; one bet, in chips beside the ante."""

    def board(self, seen: np.ndarray, seat: int) -> str:
        """The own card, and the bets."""
        mine, theirs = np.argmax(seen[3:5]), np.argmax(seen[5:7])
        return f"you hold {CARDS[np.argmax(seen[:3])]}; chips beside the antes: yours {mine}, the other's {theirs}"

    def hand(self, seen: np.ndarray) -> str:
        """The card."""
        return CARDS[np.argmax(seen[:3])]

    def moves(self, seen: np.ndarray, legal: list[int]) -> dict[str, int]:
        """``bet`` and ``check``, or after a bet ``call`` and ``fold``."""
        faced = seen[6] > seen[4]
        return {"call": 0, "fold": 1} if faced else {"bet": 0, "check": 1}


class Leduc:
    """One card each and, from the second round on, an open one; all chips are counted, antes included."""

    def board(self, seen: np.ndarray, seat: int) -> str:
        """The cards, and the chips."""
        mine, theirs = self._chips(seen)
        shown = f", on the table lies {CARDS[np.argmax(seen[3:6])]}" if seen[3:6].any() else ""
        return f"you hold {CARDS[np.argmax(seen[:3])]}{shown}; chips: yours {mine}, the other's {theirs}"

    def hand(self, seen: np.ndarray) -> str:
        """The card."""
        return CARDS[np.argmax(seen[:3])]

    def moves(self, seen: np.ndarray, legal: list[int]) -> dict[str, int]:
        """``check`` or ``call``, ``raise``, ``fold``."""
        mine, theirs = self._chips(seen)
        names = ("call" if theirs > mine else "check", "raise", "fold")
        return {names[move]: move for move in legal}

    def _chips(self, seen: np.ndarray) -> tuple[int, int]:
        return int(np.argmax(seen[6:20])), int(np.argmax(seen[20:34]))


class Numbers:
    """A game without a drawing: moves are the numbers that it counts them by."""

    def board(self, seen: np.ndarray, seat: int) -> str:
        """Nothing."""
        return ""

    def hand(self, seen: np.ndarray) -> str:
        """Nothing."""
        return ""

    def moves(self, seen: np.ndarray, legal: list[int]) -> dict[str, int]:
        """Numbers from 0."""
        return {str(move): move for move in legal}


DRAWINGS: dict[str, Drawing] = {
    "pgx:tic_tac_toe": Cells(),
    "pgx:connect_four": Columns(),
    "pgx:kuhn_poker": Kuhn(),
    "pgx:leduc_holdem": Leduc(),
}
"""By the name of the game; others have :class:`Numbers`."""


def _marks(seen: np.ndarray, seat: int) -> np.ndarray:
    """``X`` of the one who began, ``O`` of the other; planes are the own marks and the other's."""
    mine, theirs = seen[..., 0] > 0, seen[..., 1] > 0
    return np.where(mine, MARKS[seat], np.where(theirs, MARKS[1 - seat], ""))
