"""Tic-tac-toe as a text task against a random opponent.

Cells are ``1`` to ``9``, row by row. ``start >`` asks to begin, ``5 >`` says that the opponent began in the middle;
``1 <end>`` marks a cell, and the message is the opponent's cell. Three in a row earn 1, the opponent's three in a row
cost 1; a response that is no free cell loses at once; a full board is worth 0. Who begins is random.

The demonstrator marks the cell of the highest value against this opponent, but a share ``demonstrator_noise`` of its
cells are random free ones. Differs from the game: the other player is part of the environment and random.
"""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from thespis.core.spaces import END, word_vocabulary
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep, cut_at_eos, pack_tokens
from thespis.runtime.keys import fold

_NUM_CELLS = 9
_LINES = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]])
_FREE, _OWN, _OTHER = range(3)


class TictactoeState(eqx.Module):
    """State of one game: the board, whose cells are 0 (free), 1 (the agent's) or 2 (the opponent's)."""

    cells: Int[Array, "*episodes cell"]


class Tictactoe(eqx.Module):
    """Tic-tac-toe as a text task against a random opponent.

    ``demonstrator_noise``: the share of the demonstrator's cells that are random.
    """

    demonstrator_noise: float = 0.7

    @property
    def task_spec(self) -> TaskSpec:
        """Cells and two more words."""
        cells = tuple(map(str, range(1, _NUM_CELLS + 1)))
        words = word_vocabulary((RESPONSE_CUE, "start", *cells))
        return TaskSpec(
            "text:tictactoe",
            words,
            max_turns=5,
            max_response_tokens=2,
            max_opening_tokens=2,
            max_message_tokens=2,
            choices=cells,
        )

    def init(self, key: Key[Array, ""]) -> tuple[TictactoeState, Int[Array, " opening"]]:
        """An empty board, or one with the opponent's first mark."""
        spec = self.task_spec
        agent_starts, cell = (
            jax.random.bernoulli(fold(key, "first")),
            jax.random.randint(fold(key, "cell"), (), 0, _NUM_CELLS),
        )
        empty = jnp.zeros(_NUM_CELLS, "int32")
        cells = jnp.where(agent_starts, empty, empty.at[cell].set(_OTHER))
        return TictactoeState(cells), pack_tokens(
            spec.max_opening_tokens,
            jnp.where(agent_starts, spec.encode_word("start"), spec.encode_word("1") + cell),
            spec.encode(RESPONSE_CUE),
        )

    def step(
        self, state: TictactoeState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[TictactoeState, TaskStep]:
        """Mark a cell, and let the opponent reply."""
        spec = self.task_spec
        tokens, length = cut_at_eos(spec, response)
        cell = tokens[0] - spec.encode_word("1")
        legal = (length == 1) & (cell >= 0) & (cell < _NUM_CELLS)
        cell = jnp.clip(cell, 0, _NUM_CELLS - 1)
        legal &= state.cells[cell] == _FREE
        cells = jnp.where(legal, state.cells.at[cell].set(_OWN), state.cells)
        is_win, is_full = self._has_line(cells, _OWN), (cells != _FREE).all()
        reply = jax.random.categorical(fold(key, "reply"), jnp.where((cells == _FREE) | is_full, 0.0, -jnp.inf))
        next_cells = jnp.where(~legal | is_win | is_full, cells, cells.at[reply].set(_OTHER))
        is_loss, next_full = self._has_line(next_cells, _OTHER), (next_cells != _FREE).all()
        done = ~legal | is_win | is_loss | next_full
        reward = jnp.where(~legal | (is_loss & ~is_win), -1.0, is_win.astype("float32"))
        message = jnp.where(
            done, -1, pack_tokens(spec.max_message_tokens, spec.encode_word("1") + reply, spec.encode(RESPONSE_CUE))
        )
        return TictactoeState(next_cells), TaskStep(message, reward, done)

    def demonstrator_response(self, state: TictactoeState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The optimal cell, or a random free one."""
        spec = self.task_spec
        free = jnp.where(state.cells == _FREE, 0.0, -jnp.inf)
        is_noise = jax.random.uniform(fold(key, "wander")) < self.demonstrator_noise
        best = jnp.asarray(optimal_moves())[(state.cells * 3 ** np.arange(_NUM_CELLS)).sum()]
        cell = jnp.where(is_noise, jax.random.categorical(fold(key, "lot"), free), best)
        return pack_tokens(spec.max_response_tokens, spec.encode_word("1") + cell, spec.encode(END))

    def _has_line(self, cells: Int[Array, " cell"], mark: int) -> Bool[Array, ""]:
        return (cells[_LINES] == mark).all(axis=-1).any()


@functools.cache
def optimal_moves() -> np.ndarray:
    """Table of optimal cells against a random opponent, indexed by the board in base 3, first cell first.

    Boards on which the game is over have 0.
    """
    best = np.zeros(3**_NUM_CELLS, "int32")

    def has_won(cells: tuple[int, ...], mark: int) -> bool:
        return any(all(cells[i] == mark for i in line) for line in _LINES)

    def with_mark(cells: tuple[int, ...], cell: int, mark: int) -> tuple[int, ...]:
        return (*cells[:cell], mark, *cells[cell + 1 :])

    @functools.cache
    def value(cells: tuple[int, ...]) -> float:
        """The expected reward of the agent, which is to move."""
        if has_won(cells, _OTHER):
            return -1.0
        free = [i for i in range(_NUM_CELLS) if cells[i] == _FREE]
        if not free:
            return 0.0
        values = {}
        for cell in free:
            next_cells = with_mark(cells, cell, _OWN)
            replies = [i for i in free if i != cell]
            if has_won(next_cells, _OWN) or not replies:
                values[cell] = float(has_won(next_cells, _OWN))
            else:
                values[cell] = sum(value(with_mark(next_cells, i, _OTHER)) for i in replies) / len(replies)
        best[sum(mark * 3**i for i, mark in enumerate(cells))] = max(values, key=values.__getitem__)
        return max(values.values())

    empty = (_FREE,) * _NUM_CELLS
    for board in (empty, *(with_mark(empty, i, _OTHER) for i in range(_NUM_CELLS))):
        value(board)
    return best
