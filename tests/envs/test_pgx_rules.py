"""Rules of pgx games in our adapter against OpenSpiel: legal moves, turns, ends and payoffs.

Games whose moves do not correspond one to one are left out: in backgammon, OpenSpiel moves both dice at once.
"""

from __future__ import annotations

import jax
import numpy as np
import pytest
from openspiel_games import PAIRS

from thespis.runtime.keys import seed_key

GAMES = {
    "kuhn_poker": 30,
    "leduc_holdem": 60,
    "tic_tac_toe": 30,
    "connect_four": 15,
    "othello": 5,
    "hex": 3,
    "go_9x9": 3,
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in ("go_9x9", "hex") else []) for n in GAMES]
)
def test_random_games_match_openspiel(name):
    pair, rng = PAIRS[name], np.random.default_rng(0)
    game = pair.ours
    start, step = jax.jit(game.init), jax.jit(game.step)
    inspect = jax.jit(lambda p: (game.is_terminal(p), game.current_player(p), game.action_mask(p), game.rewards(p)))
    ends = set()
    for episode in range(GAMES[name]):
        state, openspiel_state, payoffs = (
            start(seed_key(episode)),
            pair.load().new_initial_state(),
            np.zeros(game.spec.num_players),
        )
        cards = pair.cards(state)
        while True:
            while openspiel_state.is_chance_node():
                openspiel_state.apply_action(cards.pop(0))
            over, player, legal, payoff = map(np.asarray, inspect(state))
            payoffs += payoff
            assert bool(over) == openspiel_state.is_terminal()
            if over:
                break
            assert int(player) == openspiel_state.current_player()
            assert pair.legal(legal) == openspiel_state.legal_actions()
            move = rng.choice([m for m in np.flatnonzero(legal) if m not in pair.extra])
            state = step(state, move.astype("int32"), seed_key(0))
            openspiel_state.apply_action(pair.move(int(move)))
        np.testing.assert_array_equal(payoffs, openspiel_state.returns())
        ends.add(tuple(payoffs))
    assert len(ends) > 1
