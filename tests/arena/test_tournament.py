"""Tournaments: players of all kinds, seatings, notes, errors and reproducibility, on tiny runs."""

from __future__ import annotations

from pathlib import Path

import auction_env
import numpy as np
import pytest

from thespis import api
from thespis.arena.player_names import resolve_match_env, resolve_player
from thespis.arena.players import TrainedPlayer
from thespis.arena.tournament import TournamentResult, run_tournament, short_names
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.envs import registry

SMALL = {"steps": 256, "envs": 4, "episodes": 2, "settings": ["num_steps=16", "hidden_sizes=8", "num_epochs=1"]}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Tiny runs: self-play with two seeds, and a single-agent run."""
    directory = tmp_path_factory.mktemp("arena")
    api.train("ppo", "pgx:kuhn_poker", seeds=2, out=directory / "both", **SMALL)
    api.train("ppo", "CartPole-v1", out=directory / "cart", **SMALL)
    return directory


@pytest.fixture(scope="module")
def past_selves(runs) -> str:
    """A run that trains one player against its past selves."""
    api.train("ppo", "pgx:kuhn_poker", curriculum="uniform", out=runs / "past", **SMALL)
    return f"{runs}/past"


def match_of(standings: TournamentResult, *seating: int):
    """The match with this seating."""
    return next(m for m in standings.matches if m.seating == seating)


@pytest.mark.slow
def test_runs_of_all_kinds_can_play(runs, past_selves):
    texts = [f"{runs}/both", past_selves, "bot:random"]
    result = run_tournament(texts, num_games=20)
    assert result.env == "pgx:kuhn_poker" and result.names == ("both", "past", "bot:random")
    assert len(result.matches) == 9 and all(m.payoffs.shape == (1, 20, 2) for m in result.matches)
    assert all((np.abs(m.payoffs[..., 0]) <= 2).all() and not m.payoffs.sum(axis=-1).any() for m in result.matches)
    assert result.exploitability[2] == pytest.approx(11 / 24)  # of uniform play in Kuhn poker
    assert all(value > 0 for value in result.exploitability)
    assert result.best_responses == (None, None, None)
    document = result.to_json()
    assert document["played"][0][1] == 40 and document["players"][0]["rating"]["elo"] == result.ratings.players[0].elo


@pytest.mark.slow
def test_games_do_not_depend_on_the_other_players(runs, past_selves):
    both, random = f"{runs}/both", "bot:random"
    few, again, more = (
        run_tournament(texts, num_games=10) for texts in ([both, random], [both, random], [past_selves, both, random])
    )
    assert few.to_json() == again.to_json()
    np.testing.assert_array_equal(match_of(few, 0, 1).payoffs, match_of(more, 1, 2).payoffs)
    np.testing.assert_array_equal(match_of(few, 1, 0).payoffs, match_of(more, 2, 1).payoffs)
    other = run_tournament([both, random], num_games=10, seed=1)
    assert not np.array_equal(match_of(other, 0, 1).payoffs, match_of(few, 0, 1).payoffs)


@pytest.mark.slow
def test_best_responses_are_trained_on_request(runs):
    texts = [f"{runs}/both", "bot:random"]
    result = run_tournament(texts, num_games=20, best_response_steps=2_000, train=api.train)
    assert all(response is not None and -2 <= response.value <= 2 for response in result.best_responses)
    assert sum("alone has a mean payoff of" in note for note in result.notes) == 2
    assert result.to_json()["players"][1]["best_response"]["value"] == result.best_responses[1].value


@pytest.mark.slow
def test_all_seeds_play_all_seeds(runs):
    result = run_tournament([f"{runs}/both", "bot:random"], num_games=5, all_seeds=True)
    assert match_of(result, 0, 1).seed_indices.tolist() == [[0, 0], [1, 0]]
    assert match_of(result, 1, 0).seed_indices.tolist() == [[0, 0], [0, 1]]
    assert match_of(result, 0, 0).seed_indices.tolist() == [[0, 0], [1, 1]]
    assert result.ratings.players[0].interval is None  # two seeds are too few
    single = run_tournament([f"{runs}/both@1", "bot:random"], num_games=5)
    assert single.players[0].seeds == (1,)


@pytest.mark.slow
def test_greedy_and_sampled_play_differ(runs):
    name, env = resolve_match_env([f"{runs}/both"], None)
    greedy, sampled = (
        resolve_player(f"{runs}/both", env, name, mode).seed_players[0] for mode in (Mode.EXPLOIT, Mode.SAMPLE)
    )
    assert isinstance(greedy, TrainedPlayer) and greedy.mode is Mode.EXPLOIT and sampled.mode is Mode.SAMPLE
    assert (
        greedy.evaluate_exploitability(env.spec.game).exploitability
        != sampled.evaluate_exploitability(env.spec.game).exploitability
    )


@pytest.mark.slow
def test_a_run_of_one_player_plays_all_players(past_selves):
    """Its policy is that of the one learner for both players; the observation says which player acts."""
    name, env = resolve_match_env([past_selves], None)
    player = resolve_player(past_selves, env, name, Mode.SAMPLE).seed_players[0]
    run = api.load(past_selves)
    expected = run.states_for_seeds([0])
    assert all(
        np.array_equal(a, b[0])
        for a, b in zip(map(np.asarray, _leaves(player.state)), map(np.asarray, _leaves(expected)), strict=True)
    )
    with pytest.raises(UserError, match="was trained for one agent on pgx:kuhn_poker"):
        run_tournament(["bot:random", past_selves], "pgx:leduc_holdem", num_games=2)


def _leaves(tree):
    import jax

    return jax.tree.leaves(tree)


def test_three_players_and_players_of_the_user(monkeypatch):
    env = auction_env.Auction()
    result = run_tournament(["auction_env:low", "auction_env:HIGH"], env, num_games=30)
    assert sorted({m.seating for m in result.matches}) == [
        (0, 0, 0),
        (0, 0, 1),
        (0, 1, 0),
        (0, 1, 1),
        (1, 0, 0),
        (1, 0, 1),
        (1, 1, 0),
        (1, 1, 1),
    ]
    assert result.cross_play[1][0].points.value == 1.0 and result.ratings.players[1].unbounded_side == "above"
    assert result.ratings.seats[2].elo > result.ratings.seats[1].elo  # the last agent bids one more


def test_identical_games_are_reported():
    result = run_tournament(["auction_env:low", "auction_env:HIGH"], auction_env.Auction(last=1), num_games=10)
    assert "low against auction_env:HIGH: all 10 games were identical" in result.notes[1]
    assert not run_tournament(["bot:random", "auction_env:low"], auction_env.Auction(), num_games=10).notes


def test_equal_payoffs_give_no_ratings():
    result = run_tournament(["auction_env:low", "auction_env:HIGH"], auction_env.Auction(shared=True), num_games=10)
    assert result.ratings is None and "there are no ratings" in result.notes[-1]
    assert (
        result.cross_play[1][1].payoff.value
        > result.cross_play[1][0].payoff.value
        > result.cross_play[0][0].payoff.value
    )


MISTAKES = [
    (["bot:random", "bot:mcts-5"], None, "choose one with --env NAME"),
    (["bot:random", "bot:random"], "pgx:tic_tac_toe", "at least two different players"),
    (["bot:random", "bot:mcts"], "pgx:tic_tac_toe", "there is no bot:mcts: bots are"),
    (["bot:random", "bot:mcts-0"], "pgx:tic_tac_toe", "there is no bot:mcts-0"),
    (["bot:random", "bot:mcts-5"], "pgx:kuhn_poker", "pgx:kuhn_poker is not one"),
    (["bot:random", "nowhere"], "pgx:kuhn_poker", "nowhere does not exist"),
    (["bot:random", "{runs}/cart"], "pgx:kuhn_poker", "was trained for one agent on gymnax:CartPole-v1"),
    (["bot:random", "{runs}/cart"], None, "gymnax:CartPole-v1 has one agent"),
    (["bot:random", "{runs}/both"], "pgx:leduc_holdem", "was trained on pgx:kuhn_poker and does not fit"),
    (["{runs}/cart", "{runs}/both"], None, "choose one with --env"),
    (["bot:random", "{runs}/both@7"], None, "this run has no seed 7"),
    (["bot:random", "auction_env:NOBODY"], "pgx:kuhn_poker", "auction_env:NOBODY is not a player"),
    (["bot:random", "auction_env:nothing"], "pgx:kuhn_poker", "auction_env:nothing cannot be imported"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("texts", "env", "message"), MISTAKES, ids=[message for *_, message in MISTAKES])
def test_mistakes_are_one_line(runs, texts, env, message):
    with pytest.raises(UserError) as error:
        run_tournament([text.format(runs=runs) for text in texts], env, num_games=2)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_short_names_are_unique():
    assert short_names(["runs/a/", "b", "bot:random"]) == ("a", "b", "bot:random")
    assert short_names(["x/ppo", "y/ppo", "y/a2c@1"]) == ("x/ppo", "y/ppo", "a2c@1")


def test_tree_search_can_be_named():
    env = registry.make_compiled("pgx:tic_tac_toe")
    assert resolve_player("bot:mcts-12", env, "pgx:tic_tac_toe", Mode.SAMPLE).seed_players[0].num_simulations == 12
