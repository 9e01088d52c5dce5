"""Tic-tac-toe against a player who marks any free cell.

Cells are ``1`` to ``9``, row by row. ``start >`` asks to begin, ``5 >`` says that the other began with the middle;
``1 <end>`` marks a cell, and the other's cell is heard. Three in a row earn 1 and cost 1 if they are the other's; what
is no free cell loses at once; a full board is worth 0. A lot says who begins.

The demonstrator marks the cell that is worth most against such a player, but ``wandering`` of its cells are any free
ones. Differs from the game: the other player is part of the world and at random.
"""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from thespis.core.keys import fold
from thespis.core.vocabulary import END, closed
from thespis.envs.text.reading import before_end
from thespis.envs.text.task import ASK, Heard, Manners, message

_CELLS = 9
_LINES = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]])
_FREE, _OWN, _OTHER = range(3)


class Board(eqx.Module):
    """Each cell: 0 free, 1 the agent's, 2 the other's."""

    cells: Int[Array, "*episodes cell"]


class Tictactoe(eqx.Module):
    """``wandering``: how many of the demonstrator's cells are any."""

    wandering: float = 0.7

    @property
    def manners(self) -> Manners:
        """Cells and two words more."""
        cells = tuple(map(str, range(1, _CELLS + 1)))
        words = closed((ASK, "start", *cells))
        return Manners("text:tictactoe", words, turns=5, utterance=2, opening=2, answer=2, choices=cells)

    def begin(self, key: Key[Array, ""]) -> tuple[Board, Int[Array, " opening"]]:
        """An empty board, or one with the other's first mark."""
        told = self.manners
        first, cell = jax.random.bernoulli(fold(key, "first")), jax.random.randint(fold(key, "cell"), (), 0, _CELLS)
        empty = jnp.zeros(_CELLS, "int32")
        cells = jnp.where(first, empty, empty.at[cell].set(_OTHER))
        return Board(cells), message(
            told.opening, jnp.where(first, told.id("start"), told.id("1") + cell), told.ids(ASK)
        )

    def hear(self, state: Board, said: Int[Array, " utterance"], key: Key[Array, ""]) -> tuple[Board, Heard]:
        """A mark, and the other's."""
        told = self.manners
        spoken, length = before_end(told, said)
        cell = spoken[0] - told.id("1")
        legal = (length == 1) & (cell >= 0) & (cell < _CELLS)
        cell = jnp.clip(cell, 0, _CELLS - 1)
        legal &= state.cells[cell] == _FREE
        cells = jnp.where(legal, state.cells.at[cell].set(_OWN), state.cells)
        won, full = self._row(cells, _OWN), (cells != _FREE).all()
        reply = jax.random.categorical(fold(key, "reply"), jnp.where((cells == _FREE) | full, 0.0, -jnp.inf))
        after = jnp.where(~legal | won | full, cells, cells.at[reply].set(_OTHER))
        lost, filled = self._row(after, _OTHER), (after != _FREE).all()
        over = ~legal | won | lost | filled
        reward = jnp.where(~legal | (lost & ~won), -1.0, won.astype("float32"))
        answer = jnp.where(over, -1, message(told.answer, told.id("1") + reply, told.ids(ASK)))
        return Board(after), Heard(answer, reward, over)

    def expert(self, state: Board, key: Key[Array, ""]) -> Int[Array, " utterance"]:
        """The best cell, or any that is free."""
        told = self.manners
        free = jnp.where(state.cells == _FREE, 0.0, -jnp.inf)
        wanders = jax.random.uniform(fold(key, "wander")) < self.wandering
        best = jnp.asarray(best_cells())[(state.cells * 3 ** np.arange(_CELLS)).sum()]
        cell = jnp.where(wanders, jax.random.categorical(fold(key, "lot"), free), best)
        return message(told.utterance, told.id("1") + cell, told.ids(END))

    def _row(self, cells: Int[Array, " cell"], mark: int) -> Bool[Array, ""]:
        return (cells[_LINES] == mark).all(axis=-1).any()


@functools.cache
def best_cells() -> np.ndarray:
    """The cell worth most against a player at random, by the board in base 3, first cell first; 0 where all is over."""
    best = np.zeros(3**_CELLS, "int32")

    def won(cells: tuple[int, ...], mark: int) -> bool:
        return any(all(cells[i] == mark for i in line) for line in _LINES)

    def marked(cells: tuple[int, ...], cell: int, mark: int) -> tuple[int, ...]:
        return (*cells[:cell], mark, *cells[cell + 1 :])

    @functools.cache
    def worth(cells: tuple[int, ...]) -> float:
        """What the agent, to move, may expect."""
        if won(cells, _OTHER):
            return -1.0
        free = [i for i in range(_CELLS) if cells[i] == _FREE]
        if not free:
            return 0.0
        worths = {}
        for cell in free:
            after = marked(cells, cell, _OWN)
            others = [i for i in free if i != cell]
            if won(after, _OWN) or not others:
                worths[cell] = float(won(after, _OWN))
            else:
                worths[cell] = sum(worth(marked(after, i, _OTHER)) for i in others) / len(others)
        best[sum(mark * 3**i for i, mark in enumerate(cells))] = max(worths, key=worths.__getitem__)
        return max(worths.values())

    empty = (_FREE,) * _CELLS
    for first in (empty, *(marked(empty, i, _OTHER) for i in range(_CELLS))):
        worth(first)
    return best
