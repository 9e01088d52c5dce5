"""Game trees of small games: known sizes, probabilities, and games that cannot be enumerated."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.contracts import GameSpec
from thespis.core.errors import UserError
from thespis.core.spaces import Discrete
from thespis.envs.games.factory import make_game
from thespis.envs.games.game_tree import build_game_tree, node_values, reach_probs, uniform_policy
from thespis.runtime.keys import seed_key


@pytest.mark.long
def test_known_sizes():
    """Kuhn (1950): 12 information states, 54 histories. Tic-tac-toe: 5,478 positions, 4,520 of them not terminal."""
    kuhn, tic_tac_toe = build_game_tree(make_game("kuhn_poker")), build_game_tree(make_game("tic_tac_toe"))
    assert (len(kuhn.current_player), len(kuhn.info_state_player)) == (54, 12)
    assert (len(tic_tac_toe.current_player), len(tic_tac_toe.info_state_player)) == (5478, 4520)
    assert np.diff(kuhn.level_offsets).tolist() == [6, 12, 24, 12]
    leduc = build_game_tree(make_game("leduc_holdem"))
    assert len(leduc.info_state_player) == 288  # OpenSpiel has 936 with suits, which do not matter


@pytest.mark.parametrize("name", ["kuhn_poker", "leduc_holdem"])
def test_initial_states_match_random_deals(name):
    """Frequencies of deals in 20,000 games against the probabilities of initial states."""
    game = make_game(name)
    chance, openings = game.initial_states()
    assert chance.sum() == pytest.approx(1, abs=1e-12)

    def cards(position):
        players = (jnp.arange(2) + position.first_player) % 2
        return jnp.concatenate([position.pgx_state._cards[players], position.pgx_state._cards[2:]])

    deals = np.asarray(jax.jit(jax.vmap(cards))(openings))
    assert len(np.unique(deals, axis=0)) == len(deals)
    started = np.asarray(jax.jit(jax.vmap(lambda key: cards(game.init(key))))(jax.random.split(seed_key(0), 20_000)))
    counts = np.array([(started == deal).all(axis=1).sum() for deal in deals])
    assert counts.sum() == 20_000
    np.testing.assert_allclose(counts / 20_000, chance, atol=5 * np.sqrt(chance.max() / 20_000))


@pytest.mark.parametrize("name", ["kuhn_poker", "leduc_holdem", "tic_tac_toe"])
def test_reach_probabilities_sum_to_one(name):
    """Reach probabilities of a level and of earlier terminal nodes sum to 1, and payoffs to 0."""
    tree = build_game_tree(make_game(name))
    with jax.enable_x64(True):
        evaluate = jax.jit(lambda policy: (reach_probs(tree, policy), node_values(tree, policy)[0]))
        (own, others), values = jax.device_get(evaluate(uniform_policy(tree)))
    np.testing.assert_allclose(values.sum(axis=1), 0, atol=1e-12)
    probs = own[:, 0] * others[:, 0] if name != "tic_tac_toe" else None
    if probs is not None:  # with transpositions, products of sums are not sums of products
        ended = 0.0
        for start, end in zip(tree.level_offsets[:-1], tree.level_offsets[1:], strict=True):
            assert probs[start:end].sum() + ended == pytest.approx(1)
            ended += probs[start:end][tree.current_player[start:end] < 0].sum()


def test_tree_is_cached_and_usable_inside_jit():
    kuhn = make_game("kuhn_poker")
    assert build_game_tree(kuhn) is build_game_tree(make_game("kuhn_poker"))
    assert int(jax.jit(lambda x: x + build_game_tree(kuhn, 100).level_offsets[-1])(1)) == 55


class TwoMoves(eqx.Module):
    """A one-player game of two moves; the first is observed only if ``shown``, and limits the second if ``hint``."""

    shown: bool = eqx.field(static=True)
    hint: bool = eqx.field(static=True, default=False)

    @property
    def spec(self):
        return GameSpec("forgetful", 1, Discrete(4), 2, perfect_information=False)

    def init(self, key):
        return jnp.zeros(3, "int32")

    def step(self, position, action, key):
        return position.at[0].add(1).at[1 + position[0]].set(action)

    def current_player(self, position):
        return jnp.zeros((), "int32")

    def observe(self, position, player):
        return position[0] + (2 * position[1] if self.shown else 0)

    def action_mask(self, position):
        return jnp.stack([jnp.ones((), bool), (position[1] == 0) | (not self.hint)])

    def is_terminal(self, position):
        return position[0] >= 2

    def rewards(self, position):
        return jnp.where(position[0] >= 2, (position[1] == position[2]).astype("float32"), 0.0)[None]


class EnumerableTwoMoves(TwoMoves):
    """The same game with ``initial_states``."""

    def initial_states(self):
        return np.ones(1), np.zeros((1, 3), "int32")


def test_perfect_recall_is_required():
    assert len(build_game_tree(EnumerableTwoMoves(True)).info_state_player) == 3
    with pytest.raises(UserError, match="do not contain all that a player has observed and done"):
        build_game_tree(EnumerableTwoMoves(False))


def test_action_masks_must_be_observed():
    build_game_tree(EnumerableTwoMoves(True, hint=True))
    with pytest.raises(UserError, match="do not contain"):
        build_game_tree(EnumerableTwoMoves(False, hint=True))


@pytest.mark.parametrize(("name", "message"), [("connect_four", "more than 200 positions"), ("2048", "chance events")])
def test_games_that_cannot_be_enumerated(name, message):
    with pytest.raises(UserError, match=message):
        build_game_tree(make_game(name), 200)


def test_initial_states_are_required():
    with pytest.raises(UserError, match="forgetful cannot be enumerated: it has no initial_states"):
        build_game_tree(TwoMoves(True))
