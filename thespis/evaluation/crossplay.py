"""Everybody against everybody: a matrix of mean points and payoffs, with intervals.

What a player makes in a seat is counted with the other player in all other seats; the entry of a pair is the mean over
seats. Points are 1 for winning more than another seat, 1/2 for as much, averaged over the other seats.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from jaxtyping import Float

from thespis.evaluation.ratings import SAMPLES, Meeting, fewest, over_seeds, seed_weights, spread, wilson
from thespis.evaluation.statistics import Interval

_NORMAL = 1.959964


@dataclasses.dataclass(frozen=True)
class Mean:
    """A mean, one for each seat, and the interval of the first; ``None`` for too few seeds, or if it is no estimate."""

    value: float
    interval: Interval | None
    by_seat: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Entry:
    """What one player makes against another, in so many games."""

    points: Mean
    payoff: Mean
    games: int


def matrix(meetings: list[Meeting], members: list[int], *, samples: int = SAMPLES, seed: int = 0) -> list[list[Entry]]:
    """Entries ``[player][other]``; of a player against itself too. ``members`` are training seeds of each player."""
    held = {m.seating: m for m in meetings}
    drawn = seed_weights(members, samples, np.random.default_rng(seed))
    seats = len(meetings[0].seating)

    def entry(mine: int, other: int) -> Entry:
        met = [held[seating_of(seat, mine, other, seats)] for seat in range(seats)]
        points = [_points(m, seat) for seat, m in enumerate(met)]
        payoffs = [m.payoffs[..., seat] for seat, m in enumerate(met)]
        if mine == other:  # the same games from every seat
            own = np.mean(payoffs, axis=0)
            by_seat = (tuple(float(x.mean()) for x in table) for table in (points, payoffs))
            won, got = by_seat
            return Entry(Mean(0.5, None, won), Mean(float(own.mean()), _normal(own), got), own.size)
        several = fewest([members[mine], members[other]])
        means = [_mean(met, table, several, drawn) for table in (points, payoffs)]
        return Entry(_within(means[0], points, several), means[1], sum(x.size for x in points))

    return [[entry(mine, other) for other in range(len(members))] for mine in range(len(members))]


def seating_of(seat: int, mine: int, other: int, seats: int) -> tuple[int, ...]:
    """One player in a seat, the other in all others."""
    return tuple(mine if i == seat else other for i in range(seats))


def _points(m: Meeting, seat: int) -> Float[np.ndarray, "pairing game"]:
    return np.mean([m.points(seat, j) for j in range(len(m.seating)) if j != seat], axis=0)


def _mean(met: list[Meeting], table: list[np.ndarray], several: int | None, drawn: list[np.ndarray]) -> Mean:
    by_seat = tuple(float(x.mean()) for x in table)
    value = float(np.mean(by_seat))
    if several is None:
        return Mean(value, _normal(np.concatenate([x.ravel() for x in table])), by_seat)
    again = np.mean([over_seeds(m, x.mean(axis=1), drawn) for m, x in zip(met, table, strict=True)], axis=0)
    return Mean(value, spread(value, again, several), by_seat)


def _within(mean: Mean, points: list[np.ndarray], several: int | None) -> Mean:
    """Points with an interval inside [0, 1]: over games it is Wilson's."""
    if several is None:
        return dataclasses.replace(mean, interval=wilson(mean.value, sum(x.size for x in points)))
    if mean.interval is None:
        return mean
    return dataclasses.replace(mean, interval=(max(0.0, mean.interval[0]), min(1.0, mean.interval[1])))


def _normal(values: np.ndarray) -> Interval:
    half = _NORMAL * float(values.std()) / math.sqrt(values.size)
    return float(values.mean()) - half, float(values.mean()) + half
