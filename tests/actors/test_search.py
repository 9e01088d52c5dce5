"""Gumbel tree search: moves, values and signs against known tic-tac-toe positions; unsupported environments."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.actors.tree_search import GameModel, GumbelSearch, require_searchable_game, sample_actions
from thespis.core.errors import UserError
from thespis.envs.games.pgx import Pgx
from thespis.envs.registry import make_compiled

GAME, KEY = Pgx("tic_tac_toe"), jax.random.key(0)
PLAY = jax.jit(GAME.step)


class Case(NamedTuple):
    """Moves so far, the only best next move, and its value to the player to move."""

    moves: tuple[int, ...]
    right: int
    value: float


# 0 1 2
# 3 4 5
# 6 7 8
WINS = [Case((0, 3, 1, 4), 2, 1.0), Case((8, 3, 1, 4, 0), 5, 1.0), Case((4, 0, 8, 1), 2, 1.0)]
SAVES = [Case((0, 4, 1), 2, 0.0), Case((4, 0, 8, 2), 1, 0.0)]
LOST = [Case((0, 1, 4, 8, 6), 0, -1.0), Case((0, 3, 4, 8, 2), 0, -1.0)]  # the opponent has two threats


def positions(cases):
    states = []
    for case in cases:
        position = GAME.init(KEY)
        for move in case.moves:
            position = PLAY(position, jnp.int32(move), KEY)
        states.append(position)
    return jax.tree.map(lambda *x: jnp.stack(x), *states)


def uniform_network(observation):
    return jnp.zeros(9), jnp.zeros(())


def search(cases, simulations, noise=0.0):
    model, states = GameModel(GAME, uniform_network), positions(cases)

    def run_search(states, legal):
        return GumbelSearch(0.5, noise, simulations)(model, model.evaluate(states), legal, KEY)

    return jax.jit(run_search)(states, jax.vmap(GAME.action_mask)(states))


@pytest.mark.long
def test_search_finds_wins_defences_and_losses():
    cases = WINS + SAVES + LOST
    result = search(cases, 128)
    right, value = np.array([case.right for case in cases]), np.array([case.value for case in cases])
    has_best_move = value >= 0
    np.testing.assert_array_equal(np.asarray(result.action)[has_best_move], right[has_best_move])
    np.testing.assert_array_equal(np.argmax(result.policy, axis=1)[has_best_move], right[has_best_move])
    for sign in (1.0, -1.0):
        assert np.all(sign * np.asarray(result.value)[value == sign] > 0.3)
    assert np.all(np.asarray(result.policy)[~np.asarray(jax.vmap(GAME.action_mask)(positions(cases)))] == 0)


@pytest.mark.long
def test_noise_varies_the_move_but_keeps_it_legal():
    case = Case((0, 3, 1), 0, 0.0)
    actions = np.asarray(search([case] * 64, 2, noise=1.0).action)
    assert len(set(actions)) > 1 and not set(actions) & set(case.moves)
    assert len(set(np.asarray(search([case] * 64, 2).action))) == 1


def test_rewards_and_discounts_are_for_the_player_to_move():
    model, states = GameModel(GAME, lambda obs: (jnp.zeros(9), jnp.asarray(0.25))), positions(WINS)
    edges, nodes = jax.jit(model.step)(states, jnp.array([2, 5, 3]), KEY)
    np.testing.assert_array_equal(edges.reward, [1.0, 1.0, 0.0])
    np.testing.assert_array_equal(edges.discount, [0.0, 0.0, -1.0])
    np.testing.assert_array_equal(nodes.value, [0.0, 0.0, 0.25])
    assert float(nodes.logits[2, 3]) < -1e9 and float(nodes.logits[2, 2]) == 0.0


def test_sampled_actions_follow_policy_and_temperature():
    policy, legal = jnp.tile(jnp.array([0.8, 0.2, 0.0]), (4000, 1)), jnp.tile(jnp.array([True, True, False]), (4000, 1))
    for temperature, probability in ((1.0, 0.2), (2.0, 1 / 3)):
        actions = np.asarray(sample_actions(policy, legal, temperature, KEY))
        assert not (actions == 2).any() and abs((actions == 1).mean() - probability) < 0.03


@pytest.mark.parametrize(
    ("env", "message"),
    [("gymnax:CartPole-v1", "no game"), ("pgx:2048", "no game"), ("pgx:kuhn_poker", "hidden or left to chance")],
)
def test_environments_that_cannot_be_searched_are_rejected(env, message):
    with pytest.raises(UserError, match=message):
        require_searchable_game(make_compiled(env).spec)
