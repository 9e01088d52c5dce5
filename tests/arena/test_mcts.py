"""Monte-Carlo tree search: forced moves of tic-tac-toe, and wins against random play."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.arena.matches import play_games
from thespis.arena.mcts import MCTSPlayer
from thespis.arena.players import UniformRandomPlayer
from thespis.core.errors import UserError
from thespis.envs import registry
from thespis.envs.games.self_play import PLAYER_GROUP, SelfPlayEnv
from thespis.runtime.keys import seed_key


@pytest.fixture(scope="module")
def env() -> SelfPlayEnv:
    return registry.make_compiled("pgx:tic_tac_toe")


@pytest.fixture(scope="module")
def searched_moves(env):
    """Moves of a search with 200 simulations for both players, as a function of at most five earlier moves."""

    @jax.jit
    def search(moves, key):
        def apply_move(position, move):
            next_position = env.game.step(position, jnp.maximum(move, 0), key)
            return jax.tree.map(lambda x, y: jnp.where(move >= 0, x, y), next_position, position), None

        position, _ = jax.lax.scan(apply_move, env.game.init(key), moves)
        view = jax.tree.map(lambda x: x[None], env.view(position))
        return MCTSPlayer.from_spec(env.spec, 200).act((), view, key)[0][PLAYER_GROUP]

    return lambda moves: np.asarray(search(np.array([*moves, *[-1] * (5 - len(moves))], "int32"), seed_key(0)))


@pytest.mark.parametrize(
    ("moves", "only"),
    [([0, 3, 1, 4], 2), ([0, 3, 1], 2), ([0, 1, 4], 8)],
    ids=["a win before a block", "the second must block", "on the diagonal"],
)
def test_forced_moves_are_found(searched_moves, moves, only):
    assert searched_moves(moves).tolist() == [[only, only]]


@pytest.mark.slow
def test_search_beats_random_play_as_either_player(env):
    search, random = MCTSPlayer.from_spec(env.spec, 30), UniformRandomPlayer.from_spec(env.spec)
    first = np.asarray(play_games(env, (search, random), (0, 1), 60, seed_key(0)).payoffs)[:, 0]
    second = np.asarray(play_games(env, (search, random), (1, 0), 60, seed_key(0)).payoffs)[:, 1]
    assert first.mean() > 0.8 and second.mean() > 0.4  # random against random: 0.3 and -0.3


def test_games_with_hidden_information_are_refused():
    with pytest.raises(UserError, match="two-player game of perfect information, and pgx:kuhn_poker is not one"):
        MCTSPlayer.from_spec(registry.make_compiled("pgx:kuhn_poker").spec, 10)
