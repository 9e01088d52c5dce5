"""Matches: seating of players, payoffs, lengths and move hashes, against payoffs computed by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from auction_env import Auction, Bids

from thespis.arena.matches import play_games, player_act, reset_games
from thespis.arena.players import Player, UniformRandomPlayer
from thespis.envs import registry
from thespis.runtime.keys import seed_key


def expected(games, number: int, offset: int) -> np.ndarray:
    """Payoffs of a player that bids ``number + offset``, plus one at each step, in games of these lengths."""
    return np.array([sum(number + offset + tick for tick in range(length)) for length in np.asarray(games.lengths)])


@pytest.mark.parametrize("seats", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (0, 0, 0), (0, 1, 2)])
def test_every_seat_acts_with_the_policy_of_its_player(seats):
    players = (Bids(0), Bids(3), Bids(1))[: max(seats) + 1]
    games = jax.device_get(play_games(Auction(), players, seats, 20, seed_key(0)))
    assert set(games.lengths) == {1, 2, 3, 4, 5}  # games end at different steps, and later rewards are not counted
    for index, offset in enumerate((0, 0, 1)):  # the third agent is the second of its group
        number = (0, 3, 1)[seats[index]]
        np.testing.assert_array_equal(games.payoffs[:, index], expected(games, number, offset))


@pytest.mark.long
def test_equal_keys_give_equal_games_and_other_keys_others():
    env = registry.make_compiled("pgx:tic_tac_toe")
    player = UniformRandomPlayer.from_spec(env.spec)
    assert isinstance(player, Player)
    first, again, other = (play_games(env, (player, player), (0, 1), 2000, seed_key(seed)) for seed in (2, 2, 1))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first.move_hashes, other.move_hashes)


def test_a_game_does_not_depend_on_the_number_of_games():
    few, many = (play_games(Auction(), (Bids(0),), (0, 0, 0), n, seed_key(3)) for n in (5, 20))
    np.testing.assert_array_equal(few.lengths, np.asarray(many.lengths)[:5])


def test_move_hashes_distinguish_games():
    env = registry.make_compiled("pgx:tic_tac_toe")
    player = UniformRandomPlayer.from_spec(env.spec)
    games = play_games(env, (player, player), (0, 1), 2000, seed_key(0))
    moves = len(np.unique(games.move_hashes))
    assert 1900 < moves <= 2000  # of 255,168 possible games, some occur twice
    fixed = play_games(Auction(last=1), (Bids(2),), (0, 0, 0), 10, seed_key(0))
    assert len(np.unique(fixed.move_hashes)) == 1


def test_random_tic_tac_toe_has_the_known_results():
    """Uniform random play: the first player wins 58.5%, the second 28.8%, and 12.7% are draws (a textbook exercise)."""
    env = registry.make_compiled("pgx:tic_tac_toe")
    player = UniformRandomPlayer.from_spec(env.spec)
    games = play_games(env, (player, player), (0, 1), 2000, seed_key(1))
    first = np.asarray(games.payoffs)[:, 0]
    shares = np.array([np.mean(first == 1), np.mean(first == -1), np.mean(first == 0)])
    np.testing.assert_allclose(shares, [0.585, 0.288, 0.127], atol=0.03)
    np.testing.assert_array_equal(np.asarray(games.payoffs).sum(axis=1), 0)


def test_random_players_act_for_every_agent():
    player, views = UniformRandomPlayer.from_spec(Auction().spec), reset_games(Auction(), 200, seed_key(0)).view
    actions, _ = player_act(player, (), views, seed_key(0), jnp.int32(0))
    right = np.asarray(actions["right"])
    assert right.shape == (200, 2) and set(right.ravel()) == set(range(9))
    assert not np.array_equal(right[:, 0], right[:, 1])
