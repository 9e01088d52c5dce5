"""Tree search finds what is forced."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.arena.matches import play
from thespis.arena.mcts import MCTS
from thespis.arena.players import Random
from thespis.core.errors import UserError
from thespis.core.keys import key_of
from thespis.envs import registry
from thespis.envs.games.everyone import SEATS, Everyone


@pytest.fixture(scope="module")
def world() -> Everyone:
    return registry.compiled("pgx:tic_tac_toe")


@pytest.fixture(scope="module")
def found(world):
    """What a search of 200 simulations does in both seats after five moves at most, -1 where none is made."""

    @jax.jit
    def searched(moves, key):
        def played(position, move):
            after = world.game.play(position, jnp.maximum(move, 0), key)
            return jax.tree.map(lambda x, y: jnp.where(move >= 0, x, y), after, position), None

        position, _ = jax.lax.scan(played, world.game.start(key), moves)
        view = jax.tree.map(lambda x: x[None], world.view(position))
        return MCTS.of(world.spec, 200).act((), view, key)[0][SEATS]

    return lambda moves: np.asarray(searched(np.array([*moves, *[-1] * (5 - len(moves))], "int32"), key_of(0)))


@pytest.mark.parametrize(
    ("moves", "only"),
    [([0, 3, 1, 4], 2), ([0, 3, 1], 2), ([0, 1, 4], 8)],
    ids=["a win before a block", "the second must block", "on the diagonal"],
)
def test_what_is_forced_is_found(found, moves, only):
    assert found(moves).tolist() == [[only, only]]


@pytest.mark.slow
def test_search_beats_chance_from_both_seats(world):
    search, chance = MCTS.of(world.spec, 30), Random.of(world.spec)
    first = np.asarray(play(world, (search, chance), (0, 1), 60, key_of(0)).payoffs)[:, 0]
    second = np.asarray(play(world, (search, chance), (1, 0), 60, key_of(0)).payoffs)[:, 1]
    assert first.mean() > 0.8 and second.mean() > 0.4  # chance against itself: 0.3 and -0.3


def test_hidden_cards_are_not_searched():
    with pytest.raises(UserError, match="two players who see everything, and pgx:kuhn_poker is none"):
        MCTS.of(registry.compiled("pgx:kuhn_poker").spec, 10)
