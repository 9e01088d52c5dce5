"""``thespis arena`` and ``thespis play``, end to end, on tiny runs and scripted input."""

from __future__ import annotations

import io
import json
from pathlib import Path

import cli_process
import numpy as np
import pytest
from conftest import SMALL
from PIL import Image

from thespis.cli.main import run as command_line


@pytest.fixture(scope="module")
def kuhn(tmp_path_factory) -> Path:
    """A tiny PPO run on Kuhn poker with three seeds."""
    out = tmp_path_factory.mktemp("arena") / "kuhn"
    words = ["train", "ppo", "--env", "pgx:kuhn_poker", "--seeds", "3", *SMALL, "--out", str(out), "--quiet"]
    assert command_line(words) == 0
    return out


@pytest.mark.long
def test_arena_prints_a_table_and_writes_it(kuhn, thespis):
    words = ("arena", kuhn, f"{kuhn}@2", "bot:random", "--games", 20, "--out", "results")
    result = thespis(*words)
    for word in (
        "Ratings on pgx:kuhn_poker",
        "kuhn@2",
        "exploitability",
        "0.458",
        "Mean points",
        "Mean payoff",
        "moving from the second seat to the first",
        "20 games per pair",
        "results/arena.png",
    ):
        assert word in result.out
    document = json.loads(Path("results/arena.json").read_text())
    assert document == thespis(*words, "--json").document
    assert [player["seeds"] for player in document["players"]] == [[0], [2], []]
    points = np.array(document["points"]["value"])
    np.testing.assert_allclose(points + points.T, 1)
    payoff = np.array(document["payoff"]["by_seat"])  # [player][other][seat]
    np.testing.assert_allclose(payoff[0, 1, 0] + payoff[1, 0, 1], 0, atol=1e-9)
    with Image.open("results/arena.png") as picture:
        assert picture.width > picture.height > 300
        assert len(np.unique(np.asarray(picture.convert("L")))) > 50


@pytest.mark.long
def test_arena_of_all_seeds_has_intervals_over_seeds(kuhn, thespis):
    document = thespis("arena", kuhn, "bot:random", "--games", 5, "--seeds", "all", "--json").document
    assert document["players"][0]["seeds"] == [0, 1, 2] and document["played"][0] == [15, 30]
    low, high = document["players"][0]["rating"]["interval"]
    assert low < document["players"][0]["rating"]["elo"] < high


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("arena", "bot:random"), "an arena needs at least two different players"),
        (("arena", "bot:random", "nowhere", "--env", "pgx:kuhn_poker"), "nowhere does not exist"),
        (("arena", "bot:random", "runs/nowhere@3"), "runs/nowhere does not exist"),
        (("arena", "bot:random", "runs/nowhere"), "runs/nowhere does not exist"),
        (("play", "bot:random"), "there is no run to take the environment from"),
        (("play", "bot:random", "--env", "pgx:kuhn_poker", "--seat", 2), "seats of pgx:kuhn_poker are 0 to 1"),
        (("play", "bot:random", "--env", "probe:coin"), "has one agent"),
        (("play", "bot:random", "--env", "auction_env:Auction"), "not a turn-based game"),
    ],
)
def test_mistakes_are_one_line(thespis, words, message, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "arena"))
    result = thespis(*words, code=2)
    assert message in result.err and result.err.count("\n") == 1 and result.out == ""


@pytest.mark.slow
def test_a_league_is_played_by_its_learners(thespis):
    """A league plays by its first main agent or by a named learner; a best response to an exploiter can be trained."""
    small = ("--env", "pgx:kuhn_poker", *SMALL, "--quiet")
    thespis("train", "ppo", "--opponents", "league", *small, "--out", "league")
    document = thespis("arena", "league", "league#0", "league@0#1", "bot:random", "--games", 20, "--json").document
    assert [player["seeds"] for player in document["players"]] == [[0], [0], [0], []]
    exploitable = [player["exploitability"] for player in document["players"]]
    assert exploitable[0] == exploitable[1] != exploitable[2]
    thespis("train", "ppo", "--opponents", "league#2", *small, "--out", "reply")
    assert "league has learners #0 to #2" in thespis("arena", "league#3", "bot:random", code=2).err
    assert "one learner" in thespis("arena", "reply#1", "bot:random", code=2).err
    assert thespis("evaluate", "league", "--episodes", 2, "--json").document["greedy"]["scores"]
    for words in (("record", "league"), ("report", "league")):
        thespis(*words)
    assert play_with_input("", "league", cwd=Path.cwd(), check=130).stdout.count("your move") == 1


def play_with_input(text: str, *words: object, cwd: Path, check: int = 0):
    """Run ``thespis play`` with this text on its stdin."""
    return cli_process.thespis("play", *words, cwd=cwd, check=check, input=text)


@pytest.mark.slow
def test_a_person_plays_a_run_to_the_end(kuhn, tmp_path):
    """For any cards: the person bets, then the run calls or folds."""
    output = play_with_input("raise\nBet\n", kuhn, "--seed", 3, cwd=tmp_path).stdout
    assert "you move first (--seed 3)" in output and "you hold " in output
    assert output.count("raise is not a legal move: type one of bet, check") == 1
    assert "kuhn plays call" in output or "kuhn plays fold" in output
    assert "kuhn held " in output and ("you win (+" in output or "you lose (−" in output)
    assert play_with_input("raise\nBet\n", kuhn, "--seed", 3, cwd=tmp_path).stdout == output


@pytest.mark.slow
def test_a_person_plays_tree_search_to_the_end(tmp_path):
    """The person plays a fixed list of cells; the game ends and boards are drawn."""
    moves = "".join(f"{cell}\n" for cell in [1, 1, 9, 3, 7, 2, 4, 6, 8, 5] * 2)
    output = play_with_input(
        moves, "bot:mcts-50", "--env", "pgx:tic_tac_toe", "--seat", 0, "--seed", 0, cwd=tmp_path
    ).stdout
    assert " X | 2 | 3\n---+---+---\n" in output and "1 is not a legal move" in output
    assert output.rstrip().endswith(("you win (+1)", "you lose (−1)", "a draw (0)"))


def test_quitting_a_game_is_clean(thespis, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    result = thespis("play", "bot:random", "--env", "pgx:connect_four", "--seat", 1, code=130)
    assert "bot:random plays" in result.out and "1 2 3 4 5 6 7\n. . . . . . .\n" in result.out
    assert result.out.rstrip().endswith("you quit before the end of the game") and result.err == ""


@pytest.mark.slow
def test_games_without_a_board_renderer_list_their_moves(tmp_path):
    process = play_with_input("0\n", "bot:random", "--env", "pgx:othello", "--json", cwd=tmp_path, check=130)
    assert "your move (19, 26, 37, 44): " in process.stderr and "0 is not a legal move" in process.stderr
    assert process.stdout == ""
