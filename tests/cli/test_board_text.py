"""Text boards: positions drawn and moves named from the observations of a player, in games with known positions."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.cli.board_text import RENDERERS
from thespis.envs.games.factory import make_game


class Position(NamedTuple):
    """A position of a game: whose turn, legal moves, payoffs and observations."""

    player: int
    over: bool
    legal: np.ndarray
    payoff: np.ndarray
    observations: list[np.ndarray]
    """By player."""


@functools.cache
def programs(name: str) -> tuple:
    """Compiled functions of a game: initial position, move, and description of a position."""
    game = make_game(name)

    def describe(position):
        observations = [game.observe(position, jnp.int32(player))["seen"] for player in (0, 1)]
        return Position(
            game.current_player(position),
            game.is_terminal(position),
            game.action_mask(position),
            game.rewards(position),
            observations,
        )

    return jax.jit(game.init), jax.jit(game.step), jax.jit(describe)


def position_after(name: str, moves: list[int], seed: int = 0) -> Position:
    start, play, describe = programs(name)
    position, key = start(jax.random.key(seed)), jax.random.key(0)
    for move in moves:
        position = play(position, np.int32(move), key)
    return jax.device_get(describe(position))


def board_text(name: str, moves: list[int], player: int, seed: int = 0) -> str:
    return RENDERERS[f"pgx:{name}"].board(position_after(name, moves, seed).observations[player], player)


def moves(name: str, history: list[int], seed: int = 0) -> dict[str, int]:
    position = position_after(name, history, seed)
    return RENDERERS[f"pgx:{name}"].legal_moves(
        position.observations[position.player], np.flatnonzero(position.legal).tolist()
    )


@pytest.mark.parametrize("player", [0, 1])
def test_both_players_see_the_same_board(player):
    assert (
        board_text("tic_tac_toe", [4, 0, 8], player) == " O | 2 | 3\n---+---+---\n 4 | X | 6\n---+---+---\n 7 | 8 | X"
    )
    rows = board_text("connect_four", [3, 3, 0], player).splitlines()
    assert rows[0] == "1 2 3 4 5 6 7" and len(rows) == 7
    assert rows[-1] == "X . . X . . ." and rows[-2] == ". . . O . . ."


def test_moves_have_the_names_that_the_board_shows():
    assert moves("tic_tac_toe", [4]) == {str(n + 1): n for n in range(9) if n != 4}
    assert moves("kuhn_poker", []) == moves("kuhn_poker", [1]) == {"bet": 0, "check": 1}
    assert moves("kuhn_poker", [0]) == moves("kuhn_poker", [1, 0]) == {"call": 0, "fold": 1}
    assert moves("leduc_holdem", []) == {"check": 0, "raise": 1}
    assert moves("leduc_holdem", [1]) == {"call": 0, "raise": 1, "fold": 2}
    assert moves("leduc_holdem", [1, 1]) == {"call": 0, "fold": 2}


def test_names_of_moves_match_their_payoffs():
    """A fold after a bet loses the ante; a called bet is worth two."""
    cases = [("kuhn_poker", "bet fold", 1), ("kuhn_poker", "bet call", 2), ("kuhn_poker", "check check", 1)]
    for name, ends, stake in [*cases, ("leduc_holdem", "raise fold", 1)]:
        history: list[int] = []
        for word in ends.split():
            history.append(moves(name, history)[word])
        position = position_after(name, history)
        assert position.over and np.abs(position.payoff).tolist() == [stake, stake]


def test_a_player_sees_its_own_cards_and_public_cards_only():
    payoff = position_after("kuhn_poker", [1, 1]).payoff
    hands = [
        RENDERERS["pgx:kuhn_poker"].hand(observation) for observation in position_after("kuhn_poker", []).observations
    ]
    assert hands[0] != hands[1] and ("JQK".index(hands[0]) > "JQK".index(hands[1])) == (payoff[0] > 0)
    assert board_text("kuhn_poker", [0], 1) == f"you hold {hands[1]}; chips besides antes: yours 0, the opponent's 1"
    assert "the public card is" not in board_text("leduc_holdem", [0], 0)
    assert "the public card is" in board_text("leduc_holdem", [0, 0], 0)
    assert board_text("leduc_holdem", [1], 0).endswith("chips: yours 3, the opponent's 1")
