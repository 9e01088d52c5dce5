"""Games as text, drawn from what a player sees."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.cli.boards import DRAWINGS
from thespis.envs.games.naming import game


class Told(NamedTuple):
    """What is to be known of a position."""

    player: int
    over: bool
    legal: np.ndarray
    payoff: np.ndarray
    seen: list[np.ndarray]
    """By player."""


@functools.cache
def programs(name: str) -> tuple:
    """A game's start, its move, and what it tells, each compiled."""
    played = game(name)

    def told(position):
        seen = [played.observe(position, jnp.int32(seat))["seen"] for seat in (0, 1)]
        return Told(
            played.player(position), played.over(position), played.legal(position), played.payoff(position), seen
        )

    return jax.jit(played.start), jax.jit(played.play), jax.jit(told)


def after(name: str, moves: list[int], seed: int = 0) -> Told:
    start, play, told = programs(name)
    position, key = start(jax.random.key(seed)), jax.random.key(0)
    for move in moves:
        position = play(position, np.int32(move), key)
    return jax.device_get(told(position))


def drawn(name: str, moves: list[int], seat: int, seed: int = 0) -> str:
    return DRAWINGS[f"pgx:{name}"].board(after(name, moves, seed).seen[seat], seat)


def moves(name: str, played: list[int], seed: int = 0) -> dict[str, int]:
    told = after(name, played, seed)
    return DRAWINGS[f"pgx:{name}"].moves(told.seen[told.player], np.flatnonzero(told.legal).tolist())


@pytest.mark.parametrize("seat", [0, 1])
def test_both_see_the_same_board(seat):
    assert drawn("tic_tac_toe", [4, 0, 8], seat) == " O | 2 | 3\n---+---+---\n 4 | X | 6\n---+---+---\n 7 | 8 | X"
    rows = drawn("connect_four", [3, 3, 0], seat).splitlines()
    assert rows[0] == "1 2 3 4 5 6 7" and len(rows) == 7
    assert rows[-1] == "X . . X . . ." and rows[-2] == ". . . O . . ."


def test_moves_have_the_names_that_are_drawn():
    assert moves("tic_tac_toe", [4]) == {str(n + 1): n for n in range(9) if n != 4}
    assert moves("kuhn_poker", []) == moves("kuhn_poker", [1]) == {"bet": 0, "check": 1}
    assert moves("kuhn_poker", [0]) == moves("kuhn_poker", [1, 0]) == {"call": 0, "fold": 1}
    assert moves("leduc_holdem", []) == {"check": 0, "raise": 1}
    assert moves("leduc_holdem", [1]) == {"call": 0, "raise": 1, "fold": 2}
    assert moves("leduc_holdem", [1, 1]) == {"call": 0, "fold": 2}


def test_names_of_moves_mean_what_they_say():
    """A fold after a bet loses the ante; a called bet is for two."""
    cases = [("kuhn_poker", "bet fold", 1), ("kuhn_poker", "bet call", 2), ("kuhn_poker", "check check", 1)]
    for name, ends, stake in [*cases, ("leduc_holdem", "raise fold", 1)]:
        taken: list[int] = []
        for word in ends.split():
            taken.append(moves(name, taken)[word])
        told = after(name, taken)
        assert told.over and np.abs(told.payoff).tolist() == [stake, stake]


def test_cards_are_the_own_ones():
    payoff = after("kuhn_poker", [1, 1]).payoff
    hands = [DRAWINGS["pgx:kuhn_poker"].hand(seen) for seen in after("kuhn_poker", []).seen]
    assert hands[0] != hands[1] and ("JQK".index(hands[0]) > "JQK".index(hands[1])) == (payoff[0] > 0)
    assert drawn("kuhn_poker", [0], 1) == f"you hold {hands[1]}; chips beside the antes: yours 0, the other's 1"
    assert "on the table lies" not in drawn("leduc_holdem", [0], 0)
    assert "on the table lies" in drawn("leduc_holdem", [0, 0], 0)
    assert drawn("leduc_holdem", [1], 0).endswith("chips: yours 3, the other's 1")
