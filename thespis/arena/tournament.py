"""Everybody against everybody in every seat, and what is to be said of it."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from thespis.arena.matches import Games, play, seats_of
from thespis.arena.naming import Entrant, entrant, environment
from thespis.arena.players import Judged, Player
from thespis.core.contracts import Environment, Game, Mode
from thespis.core.errors import UserError
from thespis.core.keys import fold, key_of
from thespis.evaluation.crossplay import Entry, Mean, matrix, seating_of
from thespis.evaluation.ratings import Meeting, Ratings, rate

DEEPEST = 12
"""Moves of the longest games that are written out to be judged exactly: it takes seconds."""


@dataclasses.dataclass(frozen=True)
class Standings:
    """What came of a tournament. ``entries[i][j]`` is player i against j; ``ratings`` ``None`` if nobody ever won.

    ``games`` are those of one pairing in one order of seats; ``names`` are short, ``entrants`` as they were given.
    """

    env: str
    mode: Mode
    games: int
    seats: int
    names: tuple[str, ...]
    entrants: tuple[Entrant, ...]
    meetings: tuple[Meeting, ...]
    entries: list[list[Entry]]
    ratings: Ratings | None
    exploitability: tuple[float | None, ...]
    """How much best replies win beyond each player in all seats, the mean of its seeds; ``None`` where not known."""
    replies: tuple[Mean | None, ...]
    """What PPO that trained against each player alone (its first seed) wins of it; ``None`` if that was not asked."""
    notes: tuple[str, ...]

    @property
    def shown(self) -> tuple[str, ...]:
        """Which matrices say something of their own: of points, of payoffs, or of both where stakes differ."""
        if self.ratings is None:
            return ("payoff",)
        stakes = {float(stake) for m in self.meetings for stake in np.unique(np.abs(m.payoffs))} - {0.0}
        return ("points", "payoff") if len(stakes) > 1 else ("points",)

    @property
    def ranking(self) -> list[int]:
        """Players from the best one down; in the order given where they are not rated."""
        ratings = self.ratings
        return sorted(range(len(self.names)), key=lambda i: -ratings.players[i].elo if ratings else i)

    def to_json(self) -> dict[str, Any]:
        """As plain dictionaries and lists; matrices are ``[player][other]``."""

        def table(of: Any) -> list[list[Any]]:
            return [[of(entry) for entry in row] for row in self.entries]

        def means(part: str) -> dict[str, Any]:
            found = table(lambda entry: dataclasses.asdict(entry)[part])
            return {key: [[cell[key] for cell in row] for row in found] for key in ("value", "interval", "by_seat")}

        players = [
            {"name": name, "player": who.text, "seeds": list(who.seeds), "exploitability": exact,
             "best_response": won and dataclasses.asdict(won)}
            for name, who, exact, won in
            zip(self.names, self.entrants, self.exploitability, self.replies, strict=True)
        ]  # fmt: skip
        rated = None if self.ratings is None else dataclasses.asdict(self.ratings)
        for player, rating in zip(players, rated["players"] if rated else [], strict=False):
            player["rating"] = rating
        return {
            "format": 1, "env": self.env, "mode": self.mode.value, "games": self.games, "players": players,
            "points": means("points"), "payoff": means("payoff"), "played": table(lambda entry: entry.games),
            "seats": rated["seats"] if rated else None, "notes": list(self.notes),
        }  # fmt: skip


def tournament(
    texts: list[str],
    env: Any = None,
    *,
    games: int = 100,
    greedy: bool = False,
    all_seeds: bool = False,
    seed: int = 0,
    best_response: int = 0,
) -> Standings:
    """Let everybody play everybody, and itself, ``games`` games in every order of seats.

    ``texts`` name the players (see :mod:`thespis.arena.naming`). A run plays with its first training seed, or, with
    ``all_seeds``, each of them with each of the other's. Equal calls give equal numbers: games of a pair have keys of
    its own under ``seed``. With ``best_response`` PPO trains for so many steps against each player by itself.

    Raises:
        UserError: for whatever the user can mend, in one line.
    """
    if len(texts) < 2 or len(set(texts)) < len(texts) or games < 1:
        raise UserError(
            "an arena needs at least two players, all different, and one game: add bot:random, for instance"
        )
    name, world = environment(texts, env)
    mode = Mode.EXPLOIT if greedy else Mode.SAMPLE
    found = [entrant(text, world, name, mode, all_seeds=all_seeds) for text in texts]
    seats, members = seats_of(world.spec), [len(each.players) for each in found]
    pairs = [(i, j, s) for i in range(len(found)) for j in range(len(found)) for s in range(seats)]
    seatings = dict.fromkeys(seating_of(s, i, j, seats) for i, j, s in pairs)
    met = [_meet(world, found, seating, games, seed) for seating in seatings]
    meetings, names = [meeting for meeting, _ in met], short(texts)
    notes = [f"{_versus(m, names)}: {note}" for m, note in met if note]
    ratings = rate(meetings, members)
    notes += [] if ratings else ["everybody always won as much as everybody else: there is nothing to rate"]
    exact = tuple(_exploitability(each, world.spec.game) for each in found)
    entries = matrix(meetings, members)
    replies = tuple(_replied(world, each, best_response, games, seed) if best_response else None for each in found)
    for who, won in zip(names, replies, strict=True):
        notes += [] if won is None else [_found(who, best_response, won)]
    return Standings(
        name, mode, games, seats, names, tuple(found), tuple(meetings), entries, ratings, exact, replies, tuple(notes)
    )


def _found(who: str, steps: int, won: Mean) -> str:
    between = "" if won.interval is None else f", 95% interval {won.interval[0]:.2f} to {won.interval[1]:.2f}"
    return f"PPO that trained {steps:,} steps against {who} alone wins {won.value:.2f} of it a game{between}"


def _replied(world: Environment, who: Entrant, steps: int, games: int, seed: int) -> Mean:
    """What a learned best reply wins of a player's first seed, in every seat."""
    from thespis.arena.replies import reply

    with tempfile.TemporaryDirectory() as room:
        learnt = Entrant(f"reply to {who.text}", (reply(world, who.players[0], steps, Path(room) / "reply", seed),))
    both, seats = [learnt, Entrant(who.text, who.players[:1])], seats_of(world.spec)
    seatings = dict.fromkeys(seating_of(s, i, j, seats) for i in (0, 1) for j in (0, 1) for s in range(seats))
    met = [_meet(world, both, seating, games, seed)[0] for seating in seatings]
    return matrix(met, [1, 1])[0][1].payoff


def _exploitability(who: Entrant, game: Game | None) -> float | None:
    """The mean of its training seeds; ``None`` for a game that is long or a player that cannot be judged."""
    if game is None or not 0 < (game.rules.longest or 0) <= DEEPEST:
        return None
    judged = [player.judged for player in who.players if isinstance(player, Judged)]
    try:
        return float(np.mean([judge(game).exploitability for judge in judged])) if judged else None
    except UserError:
        return None


def _meet(
    world: Environment, found: list[Entrant], seating: tuple[int, ...], n: int, seed: int
) -> tuple[Meeting, str | None]:
    """All games in one order of seats, each training seed of the one with each of the other, and what to note."""
    who = list(dict.fromkeys(seating))
    seats = tuple(who.index(player) for player in seating)
    choices = np.stack(np.meshgrid(*(range(len(found[i].players)) for i in who), indexing="ij"), -1).reshape(
        -1, len(who)
    )

    def one(chosen: np.ndarray) -> Games:
        players: tuple[Player, ...] = tuple(found[i].players[c] for i, c in zip(who, chosen, strict=True))
        address = "/".join(f"{found[i].text}@{c}" for i, c in zip(who, chosen, strict=True))
        return play(world, players, seats, n, fold(key_of(seed), f"arena/{seats}/{address}"))

    played = [one(chosen) for chosen in choices]
    payoffs = np.stack([np.asarray(games.payoffs, np.float64) for games in played])
    same = n > 1 and all(_alike(games) for games in played)
    note = f"all {n} games were the same one, so that they say no more than one" if same else None
    return Meeting(seating, choices[:, list(seats)], payoffs), note


def _alike(games: Games) -> bool:
    marks = np.column_stack([np.asarray(games.trail, np.float64), np.asarray(games.payoffs)])
    return bool((marks == marks[0]).all())


def _versus(meeting: Meeting, names: tuple[str, ...]) -> str:
    return " against ".join(names[player] for player in dict.fromkeys(meeting.seating))


def short(texts: list[str]) -> tuple[str, ...]:
    """The last part of each path where that tells the players apart, else what tells them apart."""
    paths = [text if ":" in text else os.path.normpath(text) for text in texts]
    last = [text if ":" in text else Path(text).name for text in paths]
    return tuple(name if last.count(name) == 1 else path for name, path in zip(last, paths, strict=True))
