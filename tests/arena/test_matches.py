"""Games of players in seats: everybody sits where they should, and what comes of it is counted once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import Auction, Bids

from thespis.arena.matches import answer, begin, play
from thespis.arena.players import Player, Random
from thespis.core.keys import key_of
from thespis.envs import registry


def expected(games, number: int, place: int) -> np.ndarray:
    """What one wins who bids ``number + place``, one more each step, in games of that length."""
    return np.array([sum(number + place + tick for tick in range(length)) for length in np.asarray(games.length)])


@pytest.mark.parametrize("seats", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (0, 0, 0), (0, 1, 2)])
def test_every_seat_does_what_the_one_who_sits_there_says(seats):
    players = (Bids(0), Bids(3), Bids(1))[: max(seats) + 1]
    games = jax.device_get(play(Auction(), players, seats, 20, key_of(0)))
    assert set(games.length) == {1, 2, 3, 4, 5}  # they end one by one, and nothing is counted after
    for seat, place in enumerate((0, 0, 1)):  # the third seat is the second one of its group
        number = (0, 3, 1)[seats[seat]]
        np.testing.assert_array_equal(games.payoffs[:, seat], expected(games, number, place))


def test_the_same_key_gives_the_same_games_and_another_others():
    world = registry.compiled("pgx:tic_tac_toe")
    player = Random.of(world.spec)
    assert isinstance(player, Player)
    one, again, other = (play(world, (player, player), (0, 1), 2000, key_of(seed)) for seed in (2, 2, 1))
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    assert not np.array_equal(one.trail, other.trail)


def test_a_game_keeps_its_world_beside_more_others():
    few, many = (play(Auction(), (Bids(0),), (0, 0, 0), n, key_of(3)) for n in (5, 20))
    np.testing.assert_array_equal(few.length, np.asarray(many.length)[:5])


def test_trails_tell_games_of_other_moves_apart():
    world = registry.compiled("pgx:tic_tac_toe")
    player = Random.of(world.spec)
    games = play(world, (player, player), (0, 1), 2000, key_of(0))
    moves = len(np.unique(games.trail))
    assert 1900 < moves <= 2000  # of 255,168 games, some come twice
    fixed = play(Auction(last=1), (Bids(2),), (0, 0, 0), 10, key_of(0))
    assert len(np.unique(fixed.trail)) == 1


def test_random_play_of_tic_tac_toe_is_as_known():
    """Uniform play: the first wins 58.5%, the second 28.8%, 12.7% are drawn (any textbook's exercise)."""
    world = registry.compiled("pgx:tic_tac_toe")
    player = Random.of(world.spec)
    games = play(world, (player, player), (0, 1), 2000, key_of(1))
    first = np.asarray(games.payoffs)[:, 0]
    found = np.array([np.mean(first == 1), np.mean(first == -1), np.mean(first == 0)])
    np.testing.assert_allclose(found, [0.585, 0.288, 0.127], atol=0.03)
    np.testing.assert_array_equal(np.asarray(games.payoffs).sum(axis=1), 0)


def test_random_players_bid_for_every_agent():
    player, views = Random.of(Auction().spec), begin(Auction(), 200, key_of(0)).view
    actions, _ = answer(player, (), views, key_of(0), jnp.int32(0))
    right = np.asarray(actions["right"])
    assert right.shape == (200, 2) and set(right.ravel()) == set(range(9))
    assert not np.array_equal(right[:, 0], right[:, 1])
