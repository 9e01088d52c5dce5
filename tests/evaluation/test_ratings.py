"""Ratings: the fit against an independent optimiser, known strengths found again, intervals that cover."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import optimize

from thespis.evaluation.crossplay import matrix, seating_of
from thespis.evaluation.ratings import ELO, Meeting, fit, rate, wilson

ELOS = np.array([150.0, 50.0, -20.0, -180.0])
FIRST = 70.0
"""What the first move is worth."""


def sigma(x):
    return 1 / (1 + np.exp(-x))


def meeting(seating, payoffs, members=None) -> Meeting:
    """Of payoffs ``[game]`` of the first of two seats, or ``[pairing, game]``."""
    first = np.atleast_2d(np.asarray(payoffs, float))
    members = np.zeros((len(first), 2), int) if members is None else np.asarray(members)
    return Meeting(seating, members, np.stack([first, -first], axis=-1))


def tournament(elos, games: int, rng: np.random.Generator, drawn: float = 0.2) -> list[Meeting]:
    """Games whose expected points are the model's, that share of them drawn (fewer where it cannot be)."""
    meetings = []
    for i, j in itertools.product(range(len(elos)), repeat=2):
        share = sigma((elos[i] - elos[j] + FIRST) / ELO)
        draws = min(drawn, 2 * share, 2 * (1 - share))
        payoffs = rng.choice([1.0, 0.0, -1.0], games, p=[share - draws / 2, draws, 1 - share - draws / 2])
        meetings.append(meeting((i, j), payoffs))
    return meetings


def test_fit_is_that_of_an_independent_optimiser():
    rng = np.random.default_rng(0)
    design = rng.integers(-1, 2, (12, 5)).astype(float)
    weights = rng.integers(1, 200, 12).astype(float)
    shares = np.stack([rng.uniform(size=12), np.round(rng.uniform(size=12))])  # the second: only wins and losses

    def loss(s, share):
        x = design @ s
        games = weights * (share * np.logaddexp(0, -x) + (1 - share) * np.logaddexp(0, x))
        return games.sum() + (np.logaddexp(0, -s) + np.logaddexp(0, s)).sum() / 2

    found = fit(design, shares, weights)
    for share, strengths in zip(shares, found, strict=True):
        best = optimize.minimize(loss, np.zeros(5), args=(share,), method="BFGS", options={"gtol": 1e-9})
        np.testing.assert_allclose(strengths, best.x, atol=1e-4)
        assert loss(strengths, share) <= best.fun + 1e-10


def test_two_players_have_the_rating_of_the_textbook():
    """75% of the points is odds of three to one; so many games outweigh the prior."""
    wins = np.repeat([1.0, -1.0], [75_000, 25_000])
    found = rate([meeting((0, 1), wins), meeting((1, 0), -wins)], [1, 1])
    assert found.players[0].elo - found.players[1].elo == pytest.approx(400 * math.log10(3), abs=0.05)
    assert found.seats[0].elo == pytest.approx(0, abs=0.05)
    assert sum(player.elo for player in found.players) == pytest.approx(0, abs=1e-9)


def test_known_strengths_and_the_first_move_are_found_again():
    found = rate(tournament(ELOS, 20_000, np.random.default_rng(1)), [1] * 4)
    np.testing.assert_allclose([player.elo for player in found.players], ELOS, atol=6)
    assert found.seats[0].elo - found.seats[1].elo == pytest.approx(FIRST, abs=6)


@pytest.mark.parametrize("games", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_intervals_over_games_cover(games):
    rng, hits, moves = np.random.default_rng(games), [], []
    for _ in range(150):
        found = rate(tournament(ELOS, games, rng), [1] * 4, samples=300)
        hits += [p.interval[0] <= elo <= p.interval[1] for p, elo in zip(found.players, ELOS, strict=True)]
        moves.append(found.seats[0].interval[0] <= FIRST / 2 <= found.seats[0].interval[1])
    print("covered", np.mean(hits), np.mean(moves))
    assert 0.92 <= np.mean(hits) <= 0.98 and 0.90 <= np.mean(moves) <= 0.99


def with_seeds(n: int, games: int, rng: np.random.Generator) -> list[Meeting]:
    """A run of ``n`` seeds, whose strengths spread by 80 points around 0, against two bots of -60 and 60."""
    own = rng.normal(0, 80, n)
    strengths = [own, [-60.0], [60.0]]
    meetings = []
    for i, j in itertools.product(range(3), repeat=2):
        pairs = [(a, a) for a in range(len(strengths[i]))] if i == j else list(
            itertools.product(range(len(strengths[i])), range(len(strengths[j])))
        )  # fmt: skip
        share = [sigma((strengths[i][a] - strengths[j][b]) / ELO) for a, b in pairs]
        payoffs = np.where(rng.uniform(size=(len(pairs), games)) < np.array(share)[:, None], 1.0, -1.0)
        meetings.append(meeting((i, j), payoffs, pairs))
    return meetings


def test_intervals_over_seeds_cover_what_those_over_games_miss():
    """Every seed plays as many games as one likes: how strong the next seed is must stay as uncertain."""
    rng, hits, narrow = np.random.default_rng(5), [], []
    for _ in range(200):
        met = with_seeds(5, 200, rng)
        run = rate(met, [5, 1, 1], samples=400).players[0]
        hits.append(run.interval[0] <= 0 <= run.interval[1])
        alone = rate([meeting(m.seating, m.payoffs[..., 0].ravel()) for m in met], [1, 1, 1], samples=100).players[0]
        narrow.append(alone.interval[0] <= 0 <= alone.interval[1])
    print("covered", np.mean(hits), np.mean(narrow))
    assert 0.90 <= np.mean(hits) <= 0.99 and np.mean(narrow) < 0.6


def test_two_seeds_are_too_few_for_an_interval():
    met = with_seeds(2, 50, np.random.default_rng(0))
    assert all(player.interval is None for player in rate(met, [2, 1, 1]).players)
    assert matrix(met, [2, 1, 1])[0][1].points.interval is None
    assert matrix(met, [2, 1, 1])[1][2].points.interval is not None  # two bots: over games


def test_unbeaten_players_have_finite_ratings_and_open_intervals():
    met = [meeting((0, 1), np.ones(50)), meeting((1, 0), -np.ones(50))]
    best, worst = rate(met, [1, 1]).players
    assert best.open == "above" and worst.open == "below" and 300 < best.elo < 2000
    assert best.interval[0] < best.elo == pytest.approx(-worst.elo)
    draw = np.r_[np.ones(49), 0.0]
    best, worst = rate([meeting((0, 1), draw), meeting((1, 0), -draw)], [1, 1]).players
    assert best.open is None and worst.open is None


def test_nobody_is_rated_where_nobody_ever_wins():
    same = np.full((1, 30, 2), 3.0)
    met = [Meeting((i, j), np.zeros((1, 2), int), same) for i, j in itertools.product(range(2), repeat=2)]
    assert rate(met, [1, 1]) is None
    assert matrix(met, [1, 1])[0][1].payoff.value == 3.0


def test_equal_games_have_equal_ratings():
    met = tournament(ELOS, 30, np.random.default_rng(3))
    assert rate(met, [1] * 4) == rate(met, [1] * 4)


def test_three_seats():
    """One in a seat, the other in both others; points are against each of them."""
    rng = np.random.default_rng(2)
    strengths, place = np.array([120.0, -120.0]), np.array([40.0, 0.0, -40.0])
    met = []
    for seating in dict.fromkeys(seating_of(s, i, j, 3) for s in range(3) for i in range(2) for j in range(2)):
        noise = rng.gumbel(size=(1, 30_000, 3))  # the largest of these wins as Bradley and Terry say
        payoffs = (strengths[list(seating)] + place) / ELO + noise
        met.append(Meeting(seating, np.zeros((1, 3), int), payoffs))
    found = rate(met, [1, 1])
    np.testing.assert_allclose([p.elo for p in found.players], strengths, atol=6)
    np.testing.assert_allclose([s.elo for s in found.seats], place, atol=6)
    entry = matrix(met, [1, 1])[0][1]
    held = {m.seating: m for m in met}
    alone = held[(1, 0, 1)]
    assert entry.points.by_seat[1] == pytest.approx((alone.points(1, 0).mean() + alone.points(1, 2).mean()) / 2)
    assert entry.payoff.by_seat[1] == pytest.approx(alone.payoffs[..., 1].mean())


@pytest.mark.parametrize(("share", "games", "low", "high"), [(0.5, 10, 0.2366, 0.7634), (1.0, 20, 0.8389, 1.0)])
def test_wilson_as_printed_elsewhere(share, games, low, high):
    """The values of R's prop.test without continuity correction."""
    assert wilson(share, games) == pytest.approx((low, high), abs=1e-4)


def test_matrix_is_of_the_row_and_antisymmetric():
    met = tournament(ELOS, 50, np.random.default_rng(4))
    found, held = matrix(met, [1] * 4), {m.seating: m.payoffs for m in met}
    entry, mirrored = found[0][3], found[3][0]
    first, second = held[0, 3][0, :, 0], held[3, 0][0, :, 1]
    assert entry.payoff.by_seat == pytest.approx((first.mean(), second.mean()))
    assert entry.payoff.value == pytest.approx(np.r_[first, second].mean()) and entry.games == 100
    assert entry.points.value == pytest.approx(1 - mirrored.points.value)
    assert entry.points.interval[0] == pytest.approx(1 - mirrored.points.interval[1])
    assert entry.points.interval[0] < entry.points.value < entry.points.interval[1]
