"""Small games written out: their sizes are known, and so is what makes a game one that cannot be."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.contracts import Rules
from thespis.core.errors import UserError
from thespis.core.game_trees import game_tree
from thespis.core.game_walks import reach, uniform, values
from thespis.core.keys import key_of
from thespis.core.spaces import Discrete
from thespis.envs.games.naming import game


def test_sizes_that_are_known():
    """Kuhn (1950): 12 information states, 54 histories. Tic-tac-toe: 5,478 positions, 4,520 that go on."""
    kuhn, nought = game_tree(game("kuhn_poker")), game_tree(game("tic_tac_toe"))
    assert (len(kuhn.player), len(kuhn.owner)) == (54, 12)
    assert (len(nought.player), len(nought.owner)) == (5478, 4520)
    assert np.diff(kuhn.levels).tolist() == [6, 12, 24, 12]
    leduc = game_tree(game("leduc_holdem"))
    assert len(leduc.owner) == 288  # OpenSpiel's 936 without the suits, which decide nothing


@pytest.mark.parametrize("name", ["kuhn_poker", "leduc_holdem"])
def test_openings_are_what_a_start_deals(name):
    """The same cards as often, in 20,000 games; whoever begins, seats are seats."""
    found = game(name)
    chance, openings = found.openings()
    assert chance.sum() == pytest.approx(1, abs=1e-12)

    def cards(position):
        seats = (jnp.arange(2) + position.first) % 2
        return jnp.concatenate([position.inner._cards[seats], position.inner._cards[2:]])

    deals = np.asarray(jax.jit(jax.vmap(cards))(openings))
    assert len(np.unique(deals, axis=0)) == len(deals)
    started = np.asarray(jax.jit(jax.vmap(lambda key: cards(found.start(key))))(jax.random.split(key_of(0), 20_000)))
    counts = np.array([(started == deal).all(axis=1).sum() for deal in deals])
    assert counts.sum() == 20_000
    np.testing.assert_allclose(counts / 20_000, chance, atol=5 * np.sqrt(chance.max() / 20_000))


@pytest.mark.parametrize("name", ["kuhn_poker", "leduc_holdem", "tic_tac_toe"])
def test_what_reaches_a_level_was_at_the_one_before(name):
    """Probability is neither lost nor made: ends so far and nodes of a level sum to 1, and payoffs to 0."""
    tree = game_tree(game(name))
    with jax.enable_x64(True):
        both = jax.jit(lambda policy: (reach(tree, policy), values(tree, policy)[0]))
        (own, others), worth = jax.device_get(both(uniform(tree)))
    np.testing.assert_allclose(worth.sum(axis=1), 0, atol=1e-12)
    arriving = own[:, 0] * others[:, 0] if name != "tic_tac_toe" else None
    if arriving is not None:  # where ways meet, products of sums are no sums of products
        ended = 0.0
        for start, end in zip(tree.levels[:-1], tree.levels[1:], strict=True):
            assert arriving[start:end].sum() + ended == pytest.approx(1)
            ended += arriving[start:end][tree.player[start:end] < 0].sum()


def test_written_out_once_and_inside_programs():
    kuhn = game("kuhn_poker")
    assert game_tree(kuhn) is game_tree(game("kuhn_poker"))
    assert int(jax.jit(lambda x: x + game_tree(kuhn, 100).levels[-1])(1)) == 55


class Closed(eqx.Module):
    """Two moves of one player, who after the first does not know which it was; ``shown`` tells it."""

    shown: bool = eqx.field(static=True)
    hint: bool = eqx.field(static=True, default=False)

    @property
    def rules(self):
        return Rules("forgetful", 1, Discrete(4), 2, perfect=False)

    def start(self, key):
        return jnp.zeros(3, "int32")

    def play(self, position, action, key):
        return position.at[0].add(1).at[1 + position[0]].set(action)

    def player(self, position):
        return jnp.zeros((), "int32")

    def observe(self, position, player):
        return position[0] + (2 * position[1] if self.shown else 0)

    def legal(self, position):
        return jnp.stack([jnp.ones((), bool), (position[1] == 0) | (not self.hint)])

    def over(self, position):
        return position[0] >= 2

    def payoff(self, position):
        return jnp.where(position[0] >= 2, (position[1] == position[2]).astype("float32"), 0.0)[None]


class Forgetful(Closed):
    """The same, and it says how it begins."""

    def openings(self):
        return np.ones(1), np.zeros((1, 3), "int32")


def test_players_must_know_what_they_did():
    assert len(game_tree(Forgetful(True)).owner) == 3
    with pytest.raises(UserError, match="does not tell all that they have seen and done"):
        game_tree(Forgetful(False))


def test_what_is_legal_must_be_seen():
    game_tree(Forgetful(True, hint=True))
    with pytest.raises(UserError, match="does not tell"):
        game_tree(Forgetful(False, hint=True))


@pytest.mark.parametrize(("name", "why"), [("connect_four", "more than 200 positions"), ("2048", "chance goes on")])
def test_games_that_cannot_be(name, why):
    with pytest.raises(UserError, match=why):
        game_tree(game(name), 200)


def test_a_game_must_list_its_openings():
    with pytest.raises(UserError, match="forgetful cannot be written out: it has no openings"):
        game_tree(Closed(True))
