"""Whole tournaments: who plays, in which world, what is noted, and that it comes out the same again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tables

from thespis import api
from thespis.arena.naming import entrant, environment
from thespis.arena.players import Trained
from thespis.arena.tournament import Standings, short, tournament
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.envs import registry

SMALL = {"steps": 256, "envs": 4, "episodes": 2, "settings": ["length=16", "hidden=8", "epochs=1"]}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Tiny runs: self-play with two seeds, and one of a world of one agent."""
    here = tmp_path_factory.mktemp("arena")
    api.train("ppo", "pgx:kuhn_poker", seeds=2, out=here / "both", **SMALL)
    api.train("ppo", "CartPole-v1", out=here / "cart", **SMALL)
    return here


@pytest.fixture(scope="module")
def past(runs) -> str:
    """Beside them: one seat against past selves."""
    api.train("ppo", "pgx:kuhn_poker", curriculum="past", out=runs / "past", **SMALL)
    return f"{runs}/past"


def meeting(standings: Standings, *seating: int):
    return next(m for m in standings.meetings if m.seating == seating)


@pytest.mark.slow
def test_runs_of_all_kinds_play(runs, past):
    texts = [f"{runs}/both", past, "bot:random"]
    found = tournament(texts, games=20)
    assert found.env == "pgx:kuhn_poker" and found.names == ("both", "past", "bot:random")
    assert len(found.meetings) == 9 and all(m.payoffs.shape == (1, 20, 2) for m in found.meetings)
    assert all((np.abs(m.payoffs[..., 0]) <= 2).all() and not m.payoffs.sum(axis=-1).any() for m in found.meetings)
    assert found.exploitability[2] == pytest.approx(11 / 24)  # of uniform play in Kuhn poker
    assert all(value > 0 for value in found.exploitability)
    assert found.replies == (None, None, None)
    told = found.to_json()
    assert told["played"][0][1] == 40 and told["players"][0]["rating"]["elo"] == found.ratings.players[0].elo


@pytest.mark.slow
def test_the_same_call_gives_the_same_games_whoever_else_plays(runs, past):
    both, chance = f"{runs}/both", "bot:random"
    few, again, more = (tournament(texts, games=10) for texts in ([both, chance], [both, chance], [past, both, chance]))
    assert few.to_json() == again.to_json()
    np.testing.assert_array_equal(meeting(few, 0, 1).payoffs, meeting(more, 1, 2).payoffs)
    np.testing.assert_array_equal(meeting(few, 1, 0).payoffs, meeting(more, 2, 1).payoffs)
    other = tournament([both, chance], games=10, seed=1)
    assert not np.array_equal(meeting(other, 0, 1).payoffs, meeting(few, 0, 1).payoffs)


@pytest.mark.slow
def test_replies_are_learnt_when_asked(runs):
    texts = [f"{runs}/both", "bot:random"]
    found = tournament(texts, games=20, best_response=2_000)
    assert all(won is not None and -2 <= won.value <= 2 for won in found.replies)
    assert sum("alone wins" in note for note in found.notes) == 2
    assert found.to_json()["players"][1]["best_response"]["value"] == found.replies[1].value


@pytest.mark.slow
def test_all_seeds_meet_all_seeds(runs):
    found = tournament([f"{runs}/both", "bot:random"], games=5, all_seeds=True)
    assert meeting(found, 0, 1).members.tolist() == [[0, 0], [1, 0]]
    assert meeting(found, 1, 0).members.tolist() == [[0, 0], [0, 1]]
    assert meeting(found, 0, 0).members.tolist() == [[0, 0], [1, 1]]
    assert found.ratings.players[0].interval is None  # two seeds are too few
    one = tournament([f"{runs}/both@1", "bot:random"], games=5)
    assert one.entrants[0].seeds == (1,)


@pytest.mark.slow
def test_greedy_and_sampled_play_are_the_methods_own(runs):
    name, world = environment([f"{runs}/both"], None)
    greedy, sampled = (entrant(f"{runs}/both", world, name, mode).players[0] for mode in (Mode.EXPLOIT, Mode.SAMPLE))
    assert isinstance(greedy, Trained) and greedy.mode is Mode.EXPLOIT and sampled.mode is Mode.SAMPLE
    assert greedy.judged(world.spec.game).exploitability != sampled.judged(world.spec.game).exploitability


@pytest.mark.slow
def test_a_run_of_one_seat_sits_in_all(past):
    """Its policy in seat i is that of the one learner, who sees which seat it is."""
    name, world = environment([past], None)
    player = entrant(past, world, name, Mode.SAMPLE).players[0]
    alone = api.load(past)
    judged = alone.states_of([0])
    assert all(
        np.array_equal(a, b[0])
        for a, b in zip(map(np.asarray, _leaves(player.state)), map(np.asarray, _leaves(judged)), strict=True)
    )
    with pytest.raises(UserError, match="was trained for one agent on pgx:kuhn_poker"):
        tournament(["bot:random", past], "pgx:leduc_holdem", games=2)


def _leaves(tree):
    import jax

    return jax.tree.leaves(tree)


def test_three_seats_and_players_of_the_users(monkeypatch):
    world = tables.Auction()
    found = tournament(["tables:low", "tables:HIGH"], world, games=30)
    assert sorted({m.seating for m in found.meetings}) == [
        (0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1),
    ]  # fmt: skip
    assert found.entries[1][0].points.value == 1.0 and found.ratings.players[1].open == "above"
    assert found.ratings.seats[2].elo > found.ratings.seats[1].elo  # the last seat bids one more


def test_who_always_plays_the_same_game_is_told():
    found = tournament(["tables:low", "tables:HIGH"], tables.Auction(last=1), games=10)
    assert "low against tables:HIGH: all 10 games were the same one" in found.notes[1]
    assert not tournament(["bot:random", "tables:low"], tables.Auction(), games=10).notes


def test_where_all_win_alike_nobody_is_rated():
    found = tournament(["tables:low", "tables:HIGH"], tables.Auction(shared=True), games=10)
    assert found.ratings is None and "nothing to rate" in found.notes[-1]
    assert found.entries[1][1].payoff.value > found.entries[1][0].payoff.value > found.entries[0][0].payoff.value


MISTAKES = [
    (["bot:random", "bot:mcts-5"], None, "no run says in which world to play: --env NAME"),
    (["bot:random", "bot:random"], "pgx:tic_tac_toe", "at least two players, all different"),
    (["bot:random", "bot:mcts"], "pgx:tic_tac_toe", "there is no bot:mcts: bots are"),
    (["bot:random", "bot:mcts-0"], "pgx:tic_tac_toe", "there is no bot:mcts-0"),
    (["bot:random", "bot:mcts-5"], "pgx:kuhn_poker", "pgx:kuhn_poker is none"),
    (["bot:random", "nowhere"], "pgx:kuhn_poker", "nowhere does not exist"),
    (["bot:random", "{runs}/cart"], "pgx:kuhn_poker", "was trained for one agent on gymnax:CartPole-v1"),
    (["bot:random", "{runs}/cart"], None, "gymnax:CartPole-v1 has one agent"),
    (["bot:random", "{runs}/both"], "pgx:leduc_holdem", "was trained on pgx:kuhn_poker and does not fit"),
    (["{runs}/cart", "{runs}/both"], None, "say where to play with --env"),
    (["bot:random", "{runs}/both@7"], None, "this run has no seed 7"),
    (["bot:random", "tables:NOBODY"], "pgx:kuhn_poker", "tables:NOBODY is no player"),
    (["bot:random", "tables:nothing"], "pgx:kuhn_poker", "tables:nothing cannot be imported"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("texts", "env", "said"), MISTAKES, ids=[said for *_, said in MISTAKES])
def test_mistakes_are_told_in_one_line(runs, texts, env, said):
    with pytest.raises(UserError) as error:
        tournament([text.format(runs=runs) for text in texts], env, games=2)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_names_are_short_where_that_tells_them_apart():
    assert short(["runs/a/", "b", "bot:random"]) == ("a", "b", "bot:random")
    assert short(["x/ppo", "y/ppo", "y/a2c@1"]) == ("x/ppo", "y/ppo", "a2c@1")


def test_tree_search_is_named():
    world = registry.compiled("pgx:tic_tac_toe")
    assert entrant("bot:mcts-12", world, "pgx:tic_tac_toe", Mode.SAMPLE).players[0].simulations == 12
