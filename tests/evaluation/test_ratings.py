"""Bradley-Terry ratings: against an independent optimiser, known strengths, and the coverage of intervals."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import optimize

from thespis.evaluation.cross_play import cross_play_matrix, pair_seating
from thespis.evaluation.ratings import ELO_PER_STRENGTH, MatchRecord, fit_bradley_terry, fit_ratings, wilson_interval

ELOS = np.array([150.0, 50.0, -20.0, -180.0])
FIRST_MOVE = 70.0
"""Advantage of the first move in Elo points."""


def sigma(x):
    return 1 / (1 + np.exp(-x))


def match(seating, payoffs, members=None) -> MatchRecord:
    """A match from the payoffs ``[game]`` or ``[pairing, game]`` of the first of two players."""
    first = np.atleast_2d(np.asarray(payoffs, float))
    members = np.zeros((len(first), 2), int) if members is None else np.asarray(members)
    return MatchRecord(seating, members, np.stack([first, -first], axis=-1))


def tournament(elos, games: int, rng: np.random.Generator, draw_share: float = 0.2) -> list[MatchRecord]:
    """Matches whose expected points are those of the model, with at most this share of draws."""
    matches = []
    for i, j in itertools.product(range(len(elos)), repeat=2):
        share = sigma((elos[i] - elos[j] + FIRST_MOVE) / ELO_PER_STRENGTH)
        draws = min(draw_share, 2 * share, 2 * (1 - share))
        payoffs = rng.choice([1.0, 0.0, -1.0], games, p=[share - draws / 2, draws, 1 - share - draws / 2])
        matches.append(match((i, j), payoffs))
    return matches


def test_fit_agrees_with_an_independent_optimiser():
    rng = np.random.default_rng(0)
    design = rng.integers(-1, 2, (12, 5)).astype(float)
    weights = rng.integers(1, 200, 12).astype(float)
    shares = np.stack([rng.uniform(size=12), np.round(rng.uniform(size=12))])  # the second: only wins and losses

    def loss(s, share):
        x = design @ s
        games = weights * (share * np.logaddexp(0, -x) + (1 - share) * np.logaddexp(0, x))
        return games.sum() + (np.logaddexp(0, -s) + np.logaddexp(0, s)).sum() / 2

    fits = fit_bradley_terry(design, shares, weights)
    for share, strengths in zip(shares, fits, strict=True):
        best = optimize.minimize(loss, np.zeros(5), args=(share,), method="BFGS", options={"gtol": 1e-9})
        np.testing.assert_allclose(strengths, best.x, atol=1e-4)
        assert loss(strengths, share) <= best.fun + 1e-10


def test_two_players_have_the_textbook_rating():
    """75% of the points are odds of three to one; with this many games the prior has no effect."""
    wins = np.repeat([1.0, -1.0], [75_000, 25_000])
    ratings = fit_ratings([match((0, 1), wins), match((1, 0), -wins)], [1, 1])
    assert ratings.players[0].elo - ratings.players[1].elo == pytest.approx(400 * math.log10(3), abs=0.05)
    assert ratings.seats[0].elo == pytest.approx(0, abs=0.05)
    assert sum(player.elo for player in ratings.players) == pytest.approx(0, abs=1e-9)


def test_known_strengths_and_the_first_move_are_recovered():
    ratings = fit_ratings(tournament(ELOS, 20_000, np.random.default_rng(1)), [1] * 4)
    np.testing.assert_allclose([player.elo for player in ratings.players], ELOS, atol=6)
    assert ratings.seats[0].elo - ratings.seats[1].elo == pytest.approx(FIRST_MOVE, abs=6)


@pytest.mark.long
@pytest.mark.parametrize("games", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_intervals_over_games_have_their_coverage(games):
    rng, hits, moves = np.random.default_rng(games), [], []
    for _ in range(150):
        ratings = fit_ratings(tournament(ELOS, games, rng), [1] * 4, num_resamples=300)
        hits += [p.interval[0] <= elo <= p.interval[1] for p, elo in zip(ratings.players, ELOS, strict=True)]
        moves.append(ratings.seats[0].interval[0] <= FIRST_MOVE / 2 <= ratings.seats[0].interval[1])
    print("covered", np.mean(hits), np.mean(moves))
    assert 0.92 <= np.mean(hits) <= 0.98 and 0.90 <= np.mean(moves) <= 0.99


def with_seeds(n: int, games: int, rng: np.random.Generator) -> list[MatchRecord]:
    """Matches of a run with ``n`` seeds, whose strengths have mean 0 and deviation 80, and two bots of -60 and 60."""
    seed_strengths = rng.normal(0, 80, n)
    strengths = [seed_strengths, [-60.0], [60.0]]
    matches = []
    for i, j in itertools.product(range(3), repeat=2):
        pairs = (
            [(a, a) for a in range(len(strengths[i]))]
            if i == j
            else list(itertools.product(range(len(strengths[i])), range(len(strengths[j]))))
        )
        share = [sigma((strengths[i][a] - strengths[j][b]) / ELO_PER_STRENGTH) for a, b in pairs]
        payoffs = np.where(rng.uniform(size=(len(pairs), games)) < np.array(share)[:, None], 1.0, -1.0)
        matches.append(match((i, j), payoffs, pairs))
    return matches


@pytest.mark.slow
def test_intervals_over_seeds_cover_where_intervals_over_games_do_not():
    """Many games per seed do not reduce the uncertainty about the strength of another seed."""
    rng, hits, narrow = np.random.default_rng(5), [], []
    for _ in range(200):
        matches = with_seeds(5, 200, rng)
        run = fit_ratings(matches, [5, 1, 1], num_resamples=400).players[0]
        hits.append(run.interval[0] <= 0 <= run.interval[1])
        over_games = fit_ratings(
            [match(m.seating, m.payoffs[..., 0].ravel()) for m in matches], [1, 1, 1], num_resamples=100
        ).players[0]
        narrow.append(over_games.interval[0] <= 0 <= over_games.interval[1])
    print("covered", np.mean(hits), np.mean(narrow))
    assert 0.90 <= np.mean(hits) <= 0.99 and np.mean(narrow) < 0.6


def test_two_seeds_are_too_few_for_an_interval():
    matches = with_seeds(2, 50, np.random.default_rng(0))
    assert all(player.interval is None for player in fit_ratings(matches, [2, 1, 1]).players)
    assert cross_play_matrix(matches, [2, 1, 1])[0][1].points.interval is None
    assert cross_play_matrix(matches, [2, 1, 1])[1][2].points.interval is not None  # two bots: over games


def test_unbeaten_players_have_finite_ratings_and_open_intervals():
    matches = [match((0, 1), np.ones(50)), match((1, 0), -np.ones(50))]
    best, worst = fit_ratings(matches, [1, 1]).players
    assert best.unbounded_side == "above" and worst.unbounded_side == "below" and 300 < best.elo < 2000
    assert best.interval[0] < best.elo == pytest.approx(-worst.elo)
    draw = np.r_[np.ones(49), 0.0]
    best, worst = fit_ratings([match((0, 1), draw), match((1, 0), -draw)], [1, 1]).players
    assert best.unbounded_side is None and worst.unbounded_side is None


def test_equal_payoffs_give_no_ratings():
    same = np.full((1, 30, 2), 3.0)
    matches = [MatchRecord((i, j), np.zeros((1, 2), int), same) for i, j in itertools.product(range(2), repeat=2)]
    assert fit_ratings(matches, [1, 1]) is None
    assert cross_play_matrix(matches, [1, 1])[0][1].payoff.value == 3.0


def test_ratings_are_reproducible():
    matches = tournament(ELOS, 30, np.random.default_rng(3))
    assert fit_ratings(matches, [1] * 4) == fit_ratings(matches, [1] * 4)


def test_three_seats():
    """One player takes one seat, the other both others; points are counted against each of them."""
    rng = np.random.default_rng(2)
    strengths, seat_strengths = np.array([120.0, -120.0]), np.array([40.0, 0.0, -40.0])
    matches = []
    for seating in dict.fromkeys(pair_seating(s, i, j, 3) for s in range(3) for i in range(2) for j in range(2)):
        noise = rng.gumbel(size=(1, 30_000, 3))  # the largest sum wins with the Bradley-Terry probability
        payoffs = (strengths[list(seating)] + seat_strengths) / ELO_PER_STRENGTH + noise
        matches.append(MatchRecord(seating, np.zeros((1, 3), int), payoffs))
    ratings = fit_ratings(matches, [1, 1])
    np.testing.assert_allclose([p.elo for p in ratings.players], strengths, atol=6)
    np.testing.assert_allclose([s.elo for s in ratings.seats], seat_strengths, atol=6)
    entry = cross_play_matrix(matches, [1, 1])[0][1]
    by_seating = {m.seating: m for m in matches}
    single = by_seating[(1, 0, 1)]
    assert entry.points.by_seat[1] == pytest.approx((single.points(1, 0).mean() + single.points(1, 2).mean()) / 2)
    assert entry.payoff.by_seat[1] == pytest.approx(single.payoffs[..., 1].mean())


@pytest.mark.parametrize(("share", "games", "low", "high"), [(0.5, 10, 0.2366, 0.7634), (1.0, 20, 0.8389, 1.0)])
def test_wilson_interval_agrees_with_r(share, games, low, high):
    """The values of R's prop.test without continuity correction."""
    assert wilson_interval(share, games) == pytest.approx((low, high), abs=1e-4)


def test_matrix_entries_belong_to_the_row_player_and_are_antisymmetric():
    matches = tournament(ELOS, 50, np.random.default_rng(4))
    matrix, payoffs = cross_play_matrix(matches, [1] * 4), {m.seating: m.payoffs for m in matches}
    entry, mirrored = matrix[0][3], matrix[3][0]
    first, second = payoffs[0, 3][0, :, 0], payoffs[3, 0][0, :, 1]
    assert entry.payoff.by_seat == pytest.approx((first.mean(), second.mean()))
    assert entry.payoff.value == pytest.approx(np.r_[first, second].mean()) and entry.num_games == 100
    assert entry.points.value == pytest.approx(1 - mirrored.points.value)
    assert entry.points.interval[0] == pytest.approx(1 - mirrored.points.interval[1])
    assert entry.points.interval[0] < entry.points.value < entry.points.interval[1]
