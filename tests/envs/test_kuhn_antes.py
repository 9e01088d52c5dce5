"""Kuhn poker with unequal antes: payoffs against a table of the rules, values and equilibria against Kuhn's."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import thespis
from thespis.core.laws.environments import check_environment
from thespis.envs.games.game_tree import build_game_tree, uniform_policy
from thespis.envs.games.kuhn_antes import KuhnAntes
from thespis.envs.games.pgx import Pgx
from thespis.envs.games.self_play import SelfPlayEnv
from thespis.evaluation.exploitability import evaluate_policy_table
from thespis.evidence.benches import games
from thespis.evidence.measures import exploitability
from thespis.runtime.keys import seed_key

BET, PASS = 0, 1
ENDS = {"pp": None, "bp": 0, "pbp": 1, "bb": None, "pbb": None}
"""Moves at which a game ends, and the player who then wins because the other folds; ``None``: the higher card wins."""


def reference_payoffs(antes, cards, moves):
    """What both players win: the winner gets the loser's ante, and the loser's chip if a bet was called."""
    winner = ENDS[moves]
    if winner is None:
        winner = int(cards[1] > cards[0])
    amount = antes[1 - winner] + (1 if moves.endswith("bb") else 0)
    return [amount, -amount] if winner == 0 else [-amount, amount]


@pytest.mark.long
@pytest.mark.parametrize("antes", [(1, 1), (-1, 3), (3, -1), (0, 2), (2, 5)])
def test_payoffs_match_the_rules(antes):
    game = KuhnAntes(antes)
    _, deals = game.initial_states()
    cards = list(itertools.permutations(range(3), 2))
    assert len(jax.tree.leaves(deals)[0]) == len(cards)

    def play(deal, actions):
        states = [deal]
        for action in actions:
            states.append(game.step(states[-1], action, seed_key(0)))
        return [(game.is_terminal(state), game.current_player(state), game.rewards(state)) for state in states]

    play_deals = jax.jit(jax.vmap(play, (0, None)))
    for moves in ENDS:
        *before, (ended, _, payoffs) = play_deals(deals, [np.int32(BET if move == "b" else PASS) for move in moves])
        for number, (terminal, player, rewards) in enumerate(before):
            assert not terminal.any() and (player == number % 2).all() and not rewards.any()
        assert ended.all()
        np.testing.assert_array_equal(payoffs, [reference_payoffs(antes, dealt, moves) for dealt in cards])


@pytest.mark.long
def test_antes_move_values_but_not_exploitability():
    """Antes of -1 and 3 are Kuhn poker and two chips from the second player to the first, whatever both do."""
    plain, moved = (build_game_tree(game) for game in (Pgx("kuhn_poker"), KuhnAntes((-1, 3))))
    np.testing.assert_array_equal(plain.info_state_observation, moved.info_state_observation)
    rng = np.random.default_rng(0)
    for policy in (uniform_policy(plain), rng.dirichlet(np.ones(2), len(plain.info_state_player))):
        a, b = evaluate_policy_table(plain, policy), evaluate_policy_table(moved, policy)
        np.testing.assert_allclose(b.on_policy_values, a.on_policy_values + np.array([2, -2]), atol=1e-12)
        assert b.exploitability == pytest.approx(a.exploitability, abs=1e-12)


@pytest.mark.slow
def test_the_value_is_kuhns(tmp_path):
    """An eighteenth of a chip for the second player (Kuhn 1950), beside what the antes give."""
    name = f"{games.__name__}:SECOND_FAVORED_MOVES"
    run = thespis.train("cfr-plus", name, steps=300, episodes=2, evaluate_every=0, out=tmp_path / "run")
    metrics = run.metrics()
    assert metrics["value"][-1] == pytest.approx(-2 - 1 / 18, abs=2e-3)
    assert exploitability().compute(run)[0] < 2e-3
    assert games.uniform_exploitability().compute(run)[0] == pytest.approx(11 / 24)


def test_the_player_explains_a_share_of_the_variance():
    """Returns of both players: 3, 1, -3, -1 with means of 2 and -2, and 1, -1, -1, 1 with means of 0."""
    run: Any = SimpleNamespace(final_scores={"sampled": {"scores": [[3.0, 1.0], [1.0, -1.0]]}})
    np.testing.assert_allclose(games.player_variance_share().compute(run), [4 / 5, 0.0])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["FIRST_FAVORED", "SECOND_FAVORED", "EVEN"])
def test_contract(name):
    env = getattr(games, name)
    check_environment(env)
    assert env.forfeit_penalty > 4, "nobody can lose more than an ante of three chips and a bet"
    check_environment(SelfPlayEnv(env.game.game))
