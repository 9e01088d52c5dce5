"""Search finds what lies a move or two ahead, with the right sign for both players, and refuses what is no game."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.actors.positions import GameModel, searchable
from thespis.actors.search import GumbelSearch, sampled
from thespis.core.errors import UserError
from thespis.envs.games.pgx import Pgx
from thespis.envs.registry import compiled

GAME, KEY = Pgx("tic_tac_toe"), jax.random.key(0)
PLAY = jax.jit(GAME.play)


class Case(NamedTuple):
    """Moves so far, the only right one to follow, and what that is worth to the player to move."""

    moves: tuple[int, ...]
    right: int
    value: float


# 0 1 2
# 3 4 5
# 6 7 8
WINS = [Case((0, 3, 1, 4), 2, 1.0), Case((8, 3, 1, 4, 0), 5, 1.0), Case((4, 0, 8, 1), 2, 1.0)]
SAVES = [Case((0, 4, 1), 2, 0.0), Case((4, 0, 8, 2), 1, 0.0)]
LOST = [Case((0, 1, 4, 8, 6), 0, -1.0), Case((0, 3, 4, 8, 2), 0, -1.0)]  # two threats against the one to move


def positions(cases):
    found = []
    for case in cases:
        position = GAME.start(KEY)
        for move in case.moves:
            position = PLAY(position, jnp.int32(move), KEY)
        found.append(position)
    return jax.tree.map(lambda *x: jnp.stack(x), *found)


def knows_nothing(observation):
    return jnp.zeros(9), jnp.zeros(())


def search(cases, simulations, noise=0.0):
    model, at = GameModel(GAME, knows_nothing), positions(cases)

    def find(at, legal):
        return GumbelSearch(0.5, noise, simulations)(model, model.look(at), legal, KEY)

    return jax.jit(find)(at, jax.vmap(GAME.legal)(at))


def test_search_finds_a_win_a_defence_and_a_loss_for_either_player():
    cases = WINS + SAVES + LOST
    found = search(cases, 128)
    right, value = np.array([case.right for case in cases]), np.array([case.value for case in cases])
    choice = value >= 0
    np.testing.assert_array_equal(np.asarray(found.action)[choice], right[choice])
    np.testing.assert_array_equal(np.argmax(found.policy, axis=1)[choice], right[choice])
    for sign in (1.0, -1.0):
        assert np.all(sign * np.asarray(found.value)[value == sign] > 0.3)
    assert np.all(np.asarray(found.policy)[~np.asarray(jax.vmap(GAME.legal)(positions(cases)))] == 0)


def test_noise_changes_what_is_chosen_but_never_to_what_is_not_allowed():
    case = Case((0, 3, 1), 0, 0.0)
    chosen = np.asarray(search([case] * 64, 2, noise=1.0).action)
    assert len(set(chosen)) > 1 and not set(chosen) & set(case.moves)
    assert len(set(np.asarray(search([case] * 64, 2).action))) == 1


def test_edges_are_seen_by_the_one_who_moves():
    model, at = GameModel(GAME, lambda seen: (jnp.zeros(9), jnp.asarray(0.25))), positions(WINS)
    edge, place = jax.jit(model.follow)(at, jnp.array([2, 5, 3]), KEY)
    np.testing.assert_array_equal(edge.reward, [1.0, 1.0, 0.0])
    np.testing.assert_array_equal(edge.factor, [0.0, 0.0, -1.0])
    np.testing.assert_array_equal(place.value, [0.0, 0.0, 0.25])
    assert float(place.logits[2, 3]) < -1e9 and float(place.logits[2, 2]) == 0.0


def test_draws_follow_the_policy_and_its_temperature():
    policy, legal = jnp.tile(jnp.array([0.8, 0.2, 0.0]), (4000, 1)), jnp.tile(jnp.array([True, True, False]), (4000, 1))
    for temperature, share in ((1.0, 0.2), (2.0, 1 / 3)):
        drawn = np.asarray(sampled(policy, legal, temperature, KEY))
        assert not (drawn == 2).any() and abs((drawn == 1).mean() - share) < 0.03


@pytest.mark.parametrize(
    ("env", "words"),
    [("gymnax:CartPole-v1", "no game"), ("pgx:2048", "no game"), ("pgx:kuhn_poker", "hidden or left to chance")],
)
def test_what_cannot_be_searched_is_refused(env, words):
    with pytest.raises(UserError, match=words):
        searchable(compiled(env).spec)
