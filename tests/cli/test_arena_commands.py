"""``thespis arena`` and ``thespis play``, from end to end, on tiny runs."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import processes
import pytest
from conftest import SMALL
from PIL import Image

from thespis.cli.main import run as command_line


@pytest.fixture(scope="module")
def kuhn(tmp_path_factory) -> Path:
    """A tiny PPO run on Kuhn poker with three seeds."""
    out = tmp_path_factory.mktemp("arena") / "kuhn"
    told = ["train", "ppo", "--env", "pgx:kuhn_poker", "--seeds", "3", *SMALL, "--out", str(out), "--quiet"]
    assert command_line(told) == 0
    return out


def test_arena_prints_a_table_and_writes_it(kuhn, thespis):
    words = ("arena", kuhn, f"{kuhn}@2", "bot:random", "--games", 20, "--out", "told")
    said = thespis(*words)
    for word in ("Ratings on pgx:kuhn_poker", "kuhn@2", "exploitability", "0.458", "Mean points", "Mean payoff",
                 "sitting in the first seat", "20 games of each pair", "told/arena.png"):  # fmt: skip
        assert word in said.out
    written = json.loads(Path("told/arena.json").read_text())
    assert written == thespis(*words, "--json").document
    assert [player["seeds"] for player in written["players"]] == [[0], [2], []]
    points = np.array(written["points"]["value"])
    np.testing.assert_allclose(points + points.T, 1)
    payoff = np.array(written["payoff"]["by_seat"])  # [player][other][seat]
    np.testing.assert_allclose(payoff[0, 1, 0] + payoff[1, 0, 1], 0, atol=1e-9)
    with Image.open("told/arena.png") as picture:
        assert picture.width > picture.height > 300
        assert len(np.unique(np.asarray(picture.convert("L")))) > 50


def test_arena_of_all_seeds_has_intervals_over_them(kuhn, thespis):
    found = thespis("arena", kuhn, "bot:random", "--games", 5, "--seeds", "all", "--json").document
    assert found["players"][0]["seeds"] == [0, 1, 2] and found["played"][0] == [15, 30]
    low, high = found["players"][0]["rating"]["interval"]
    assert low < found["players"][0]["rating"]["elo"] < high


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("arena", "bot:random"), "an arena needs at least two players"),
        (("arena", "bot:random", "nowhere", "--env", "pgx:kuhn_poker"), "nowhere"),
        (("play", "bot:random"), "no run says in which world to play"),
        (("play", "bot:random", "--env", "pgx:kuhn_poker", "--seat", 2), "seats of pgx:kuhn_poker are 0 to 1"),
        (("play", "bot:random", "--env", "probe:coin"), "has one agent"),
        (("play", "bot:random", "--env", "tables:Auction"), "no game in turn"),
    ],
)
def test_mistakes(thespis, words, said, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "arena"))
    found = thespis(*words, code=2)
    assert said in found.err and found.err.count("\n") == 1 and found.out == ""


@pytest.mark.slow
def test_a_league_plays_by_its_learners(thespis):
    """Of a league the first main agent plays, or whom one names; exploiters of exploiters can be trained."""
    small = ("--env", "pgx:kuhn_poker", *SMALL, "--quiet")
    thespis("train", "ppo", "--opponents", "league", *small, "--out", "league")
    found = thespis("arena", "league", "league#0", "league@0#1", "bot:random", "--games", 20, "--json").document
    assert [player["seeds"] for player in found["players"]] == [[0], [0], [0], []]
    exploitable = [player["exploitability"] for player in found["players"]]
    assert exploitable[0] == exploitable[1] != exploitable[2]
    thespis("train", "ppo", "--opponents", "league#2", *small, "--out", "reply")
    assert "league has learners #0 to #2" in thespis("arena", "league#3", "bot:random", code=2).err
    assert "one learner" in thespis("arena", "reply#1", "bot:random", code=2).err
    assert thespis("evaluate", "league", "--episodes", 2, "--json").document["greedy"]["scores"]
    for words in (("record", "league"), ("report", "league")):
        thespis(*words)
    assert typed("", "league", cwd=Path.cwd(), check=130).stdout.count("your move") == 1


def typed(text: str, *words: object, cwd: Path, check: int = 0):
    return processes.thespis("play", *words, cwd=cwd, check=check, input=text)


@pytest.mark.slow
def test_a_person_plays_a_run_to_the_end(kuhn, tmp_path):
    """Whatever the cards: ``bet`` as the first, then the other calls or folds."""
    said = typed("raise\nBet\n", kuhn, "--seed", 3, cwd=tmp_path).stdout
    assert "you move first (--seed 3)" in said and "you hold " in said
    assert said.count("raise is no legal move: type one of bet, check") == 1
    assert "kuhn plays call" in said or "kuhn plays fold" in said
    assert "kuhn held " in said and ("you win (+" in said or "you lose (−" in said)
    assert typed("raise\nBet\n", kuhn, "--seed", 3, cwd=tmp_path).stdout == said


@pytest.mark.slow
def test_tree_search_takes_what_is_left_open(tmp_path):
    """The person plays corners that do not meet; the search wins or holds, and the boards are drawn."""
    moves = "".join(f"{cell}\n" for cell in [1, 1, 9, 3, 7, 2, 4, 6, 8, 5] * 2)
    said = typed(moves, "bot:mcts-50", "--env", "pgx:tic_tac_toe", "--seat", 0, "--seed", 0, cwd=tmp_path).stdout
    assert " X | 2 | 3\n---+---+---\n" in said and "1 is no legal move" in said
    assert said.rstrip().endswith(("you win (+1)", "you lose (−1)", "a draw (0)"))


def test_leaving_is_clean(thespis, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    done = thespis("play", "bot:random", "--env", "pgx:connect_four", "--seat", 1, code=130)
    assert "bot:random plays" in done.out and "1 2 3 4 5 6 7\n. . . . . . .\n" in done.out
    assert done.out.rstrip().endswith("you left before the game was over") and done.err == ""


@pytest.mark.slow
def test_other_games_list_their_moves(tmp_path):
    done = typed("0\n", "bot:random", "--env", "pgx:othello", "--json", cwd=tmp_path, check=130)
    assert "your move (19, 26, 37, 44): " in done.stderr and "0 is no legal move" in done.stderr
    assert done.stdout == ""
