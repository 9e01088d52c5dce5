"""Games of pgx behind our contract follow the rules that OpenSpiel has: legal moves, turns, ends and payoffs.

Left out are games whose moves do not correspond one to one: in backgammon OpenSpiel's players move both dice at once.
"""

from __future__ import annotations

import jax
import numpy as np
import pytest
from spiel import PAIRS

from thespis.core.keys import key_of

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
def test_random_games_go_alike(name):
    pair, rng = PAIRS[name], np.random.default_rng(0)
    game = pair.ours
    start, play = jax.jit(game.start), jax.jit(game.play)
    look = jax.jit(lambda p: (game.over(p), game.player(p), game.legal(p), game.payoff(p)))
    ends = set()
    for number in range(GAMES[name]):
        position, theirs, won = start(key_of(number)), pair.load().new_initial_state(), np.zeros(game.rules.players)
        cards = pair.cards(position)
        while True:
            while theirs.is_chance_node():
                theirs.apply_action(cards.pop(0))
            over, player, legal, payoff = map(np.asarray, look(position))
            won += payoff
            assert bool(over) == theirs.is_terminal()
            if over:
                break
            assert int(player) == theirs.current_player()
            assert pair.legal(legal) == theirs.legal_actions()
            move = rng.choice([m for m in np.flatnonzero(legal) if m not in pair.extra])
            position = play(position, move.astype("int32"), key_of(0))
            theirs.apply_action(pair.move(int(move)))
        np.testing.assert_array_equal(won, theirs.returns())
        ends.add(tuple(won))
    assert len(ends) > 1
