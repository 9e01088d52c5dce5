"""Cross-play matrix: mean points and payoffs of every player against every other, with intervals.

A player's score in a seat is measured with the other player in all other seats; the entry of a pair is the mean over
seats. Points against another seat are 1 for a higher payoff and 1/2 for an equal one, averaged over the other seats.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from jaxtyping import Float

from thespis.evaluation.ratings import (
    NUM_RESAMPLES,
    MatchRecord,
    min_seeds,
    resample_seed_weights,
    resampled_seed_means,
    seed_interval,
    wilson_interval,
)
from thespis.evaluation.statistics import Interval

_NORMAL_QUANTILE = 1.959964


@dataclasses.dataclass(frozen=True)
class MeanWithInterval:
    """A mean over seats with its interval, and the mean of each seat.

    ``interval`` is ``None`` with too few seeds, or where the value is not an estimate.
    """

    value: float
    interval: Interval | None
    by_seat: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class CrossPlayEntry:
    """Mean points and payoff of one player against another over ``num_games`` games."""

    points: MeanWithInterval
    payoff: MeanWithInterval
    num_games: int


def cross_play_matrix(
    matches: list[MatchRecord], seeds_per_player: list[int], *, num_resamples: int = NUM_RESAMPLES, seed: int = 0
) -> list[list[CrossPlayEntry]]:
    """Entries ``[player][opponent]``, self-play included; ``seeds_per_player`` counts training seeds of each player."""
    matches_by_seating = {m.seating: m for m in matches}
    weights = resample_seed_weights(seeds_per_player, num_resamples, np.random.default_rng(seed))
    num_seats = len(matches[0].seating)

    def entry(mine: int, other: int) -> CrossPlayEntry:
        meetings = [matches_by_seating[pair_seating(seat, mine, other, num_seats)] for seat in range(num_seats)]
        points = [_seat_points(m, seat) for seat, m in enumerate(meetings)]
        payoffs = [m.payoffs[..., seat] for seat, m in enumerate(meetings)]
        if mine == other:  # the same games from every seat
            mean_over_seats = np.mean(payoffs, axis=0)
            by_seat = (tuple(float(x.mean()) for x in table) for table in (points, payoffs))
            mean_points, mean_payoffs = by_seat
            return CrossPlayEntry(
                MeanWithInterval(0.5, None, mean_points),
                MeanWithInterval(float(mean_over_seats.mean()), _normal_interval(mean_over_seats), mean_payoffs),
                mean_over_seats.size,
            )
        fewest_seeds = min_seeds([seeds_per_player[mine], seeds_per_player[other]])
        player_means = [_mean_over_seats(meetings, table, fewest_seeds, weights) for table in (points, payoffs)]
        return CrossPlayEntry(
            _clip_interval(player_means[0], points, fewest_seeds), player_means[1], sum(x.size for x in points)
        )

    return [
        [entry(player, opponent) for opponent in range(len(seeds_per_player))]
        for player in range(len(seeds_per_player))
    ]


def pair_seating(seat: int, player: int, opponent: int, num_seats: int) -> tuple[int, ...]:
    """Seating with ``player`` in one seat and ``opponent`` in all others."""
    return tuple(player if i == seat else opponent for i in range(num_seats))


def _seat_points(match: MatchRecord, seat: int) -> Float[np.ndarray, "pairing game"]:
    return np.mean([match.points(seat, j) for j in range(len(match.seating)) if j != seat], axis=0)


def _mean_over_seats(
    matches: list[MatchRecord], values: list[np.ndarray], min_seeds: int | None, weights: list[np.ndarray]
) -> MeanWithInterval:
    by_seat = tuple(float(x.mean()) for x in values)
    value = float(np.mean(by_seat))
    if min_seeds is None:
        return MeanWithInterval(value, _normal_interval(np.concatenate([x.ravel() for x in values])), by_seat)
    resamples = np.mean(
        [resampled_seed_means(m, x.mean(axis=1), weights) for m, x in zip(matches, values, strict=True)], axis=0
    )
    return MeanWithInterval(value, seed_interval(value, resamples, min_seeds), by_seat)


def _clip_interval(mean: MeanWithInterval, points: list[np.ndarray], min_seeds: int | None) -> MeanWithInterval:
    """Mean points with an interval inside [0, 1]: Wilson's if it is over games."""
    if min_seeds is None:
        return dataclasses.replace(mean, interval=wilson_interval(mean.value, sum(x.size for x in points)))
    if mean.interval is None:
        return mean
    return dataclasses.replace(mean, interval=(max(0.0, mean.interval[0]), min(1.0, mean.interval[1])))


def _normal_interval(values: np.ndarray) -> Interval:
    half = _NORMAL_QUANTILE * float(values.std()) / math.sqrt(values.size)
    return float(values.mean()) - half, float(values.mean()) + half
