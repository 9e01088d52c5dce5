"""Tournaments: every player against every other in every seat, with ratings, cross-play matrix and exploitability."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from thespis.arena.matches import GameResults, num_seats, play_games
from thespis.arena.player_names import TournamentPlayer, resolve_match_env, resolve_player
from thespis.arena.players import HasExploitability, Player
from thespis.core.contracts import Environment, Game, Mode
from thespis.core.errors import UserError
from thespis.evaluation.cross_play import CrossPlayEntry, MeanWithInterval, cross_play_matrix, pair_seating
from thespis.evaluation.ratings import MatchRecord, Ratings, fit_ratings
from thespis.runtime.keys import fold, seed_key

MAX_EXACT_MOVES = 12
"""Longest game length, in moves, for which exploitability is computed exactly: it takes seconds."""


@dataclasses.dataclass(frozen=True)
class TournamentResult:
    """Result of a tournament.

    ``cross_play[i][j]`` is player i against j; ``ratings`` is ``None`` if all games were drawn. ``num_games`` is the
    number per pairing and seating; ``names`` are short, those of ``players`` as given.
    """

    env: str
    mode: Mode
    num_games: int
    num_seats: int
    names: tuple[str, ...]
    players: tuple[TournamentPlayer, ...]
    matches: tuple[MatchRecord, ...]
    cross_play: list[list[CrossPlayEntry]]
    ratings: Ratings | None
    exploitability: tuple[float | None, ...]
    """Exploitability of each player, averaged over its seeds; ``None`` where it is not computed."""
    best_responses: tuple[MeanWithInterval | None, ...]
    """Payoff of PPO trained against each player's first seed alone; ``None`` if not requested."""
    notes: tuple[str, ...]

    @property
    def quantities(self) -> tuple[str, ...]:
        """Matrices worth showing: points, payoffs, or both where stakes differ."""
        if self.ratings is None:
            return ("payoff",)
        stakes = {float(stake) for m in self.matches for stake in np.unique(np.abs(m.payoffs))} - {0.0}
        return ("points", "payoff") if len(stakes) > 1 else ("points",)

    @property
    def ranking(self) -> list[int]:
        """Indices of players from best to worst; in the given order if there are no ratings."""
        ratings = self.ratings
        return sorted(range(len(self.names)), key=lambda i: -ratings.players[i].elo if ratings else i)

    def to_json(self) -> dict[str, Any]:
        """The result as plain dictionaries and lists; matrices are ``[player][opponent]``."""

        def table(of: Any) -> list[list[Any]]:
            return [[of(entry) for entry in row] for row in self.cross_play]

        def means(part: str) -> dict[str, Any]:
            cells = table(lambda entry: dataclasses.asdict(entry)[part])
            return {key: [[cell[key] for cell in row] for row in cells] for key in ("value", "interval", "by_seat")}

        rows = [
            {
                "name": name,
                "player": player.player_name,
                "seeds": list(player.seeds),
                "exploitability": exploitability,
                "best_response": response and dataclasses.asdict(response),
            }
            for name, player, exploitability, response in zip(
                self.names, self.players, self.exploitability, self.best_responses, strict=True
            )
        ]
        ratings = None if self.ratings is None else dataclasses.asdict(self.ratings)
        for row, rating in zip(rows, ratings["players"] if ratings else [], strict=False):
            row["rating"] = rating
        return {
            "format": 1,
            "env": self.env,
            "mode": self.mode.value,
            "games": self.num_games,
            "players": rows,
            "points": means("points"),
            "payoff": means("payoff"),
            "played": table(lambda entry: entry.num_games),
            "seats": ratings["seats"] if ratings else None,
            "notes": list(self.notes),
        }


def run_tournament(
    player_names: list[str],
    env: Any = None,
    *,
    num_games: int = 100,
    greedy: bool = False,
    all_seeds: bool = False,
    seed: int = 0,
    best_response_steps: int = 0,
    train: Callable[..., Any] | None = None,
) -> TournamentResult:
    """Play ``num_games`` games for every pair of players, self-play included, in every seating.

    Names of players: see :mod:`thespis.arena.player_names`. A run plays with its first training seed or, with
    ``all_seeds``, with each of its seeds against each of the opponent's. Equal calls give equal numbers: each pairing
    has its own key under ``seed``. With ``best_response_steps`` > 0, PPO trains for so many steps against each player
    separately, by ``train``, which is :func:`thespis.train`.

    Raises:
        ValueError: for best responses without ``train``.
        UserError: for errors that the user can fix, such as unknown players.
    """
    if len(player_names) < 2 or len(set(player_names)) < len(player_names) or num_games < 1:
        raise UserError("an arena needs at least two different players and one game: add bot:random, for instance")
    if best_response_steps and train is None:
        raise ValueError("best responses are trained: pass train=thespis.train")
    env_name, match_env = resolve_match_env(player_names, env)
    mode = Mode.EXPLOIT if greedy else Mode.SAMPLE
    players = [
        resolve_player(player_name, match_env, env_name, mode, all_seeds=all_seeds) for player_name in player_names
    ]
    seats, seeds_per_player = num_seats(match_env.spec), [len(player.seed_players) for player in players]
    pairs = [(i, j, s) for i in range(len(players)) for j in range(len(players)) for s in range(seats)]
    seatings = dict.fromkeys(pair_seating(s, i, j, seats) for i, j, s in pairs)
    results = [_play_match(match_env, players, seating, num_games, seed) for seating in seatings]
    matches, names = [match for match, _ in results], short_names(player_names)
    notes = [f"{_match_title(m, names)}: {note}" for m, note in results if note]
    ratings = fit_ratings(matches, seeds_per_player)
    notes += [] if ratings else ["all games were drawn: there are no ratings"]
    exploitability = tuple(_mean_exploitability(player, match_env.spec.game) for player in players)
    cross_play = cross_play_matrix(matches, seeds_per_player)
    best_responses = tuple(
        _best_response_payoff(train, match_env, player, best_response_steps, num_games, seed)
        if best_response_steps and train
        else None
        for player in players
    )
    for name_of, payoff in zip(names, best_responses, strict=True):
        notes += [] if payoff is None else [_best_response_note(name_of, best_response_steps, payoff)]
    return TournamentResult(
        env_name,
        mode,
        num_games,
        seats,
        names,
        tuple(players),
        tuple(matches),
        cross_play,
        ratings,
        exploitability,
        best_responses,
        tuple(notes),
    )


def _best_response_note(player_name: str, num_steps: int, payoff: MeanWithInterval) -> str:
    interval_text = (
        "" if payoff.interval is None else f", 95% interval {payoff.interval[0]:.2f} to {payoff.interval[1]:.2f}"
    )
    return (
        f"PPO trained for {num_steps:,} steps against {player_name} alone has a mean payoff of "
        f"{payoff.value:.2f} per game{interval_text}"
    )


def _best_response_payoff(
    train: Callable[..., Any], env: Environment, player: TournamentPlayer, num_steps: int, num_games: int, seed: int
) -> MeanWithInterval:
    """Payoff of a learned best response against a player's first seed, over all seats."""
    from thespis.arena.best_response import train_best_response

    with tempfile.TemporaryDirectory() as directory:
        response = TournamentPlayer(
            f"reply to {player.player_name}",
            (train_best_response(train, env, player.seed_players[0], num_steps, Path(directory) / "reply", seed),),
        )
    players, seats = [response, TournamentPlayer(player.player_name, player.seed_players[:1])], num_seats(env.spec)
    seatings = dict.fromkeys(pair_seating(s, i, j, seats) for i in (0, 1) for j in (0, 1) for s in range(seats))
    matches = [_play_match(env, players, seating, num_games, seed)[0] for seating in seatings]
    return cross_play_matrix(matches, [1, 1])[0][1].payoff


def _mean_exploitability(player: TournamentPlayer, game: Game | None) -> float | None:
    """Mean exploitability of a player's seeds; ``None`` for a long game or a player that does not provide it."""
    if game is None or not 0 < (game.spec.max_game_length or 0) <= MAX_EXACT_MOVES:
        return None
    evaluators = [
        seed_player.evaluate_exploitability
        for seed_player in player.seed_players
        if isinstance(seed_player, HasExploitability)
    ]
    try:
        return float(np.mean([evaluate(game).exploitability for evaluate in evaluators])) if evaluators else None
    except UserError:
        return None


def _play_match(
    env: Environment, players: list[TournamentPlayer], seating: tuple[int, ...], num_games: int, seed: int
) -> tuple[MatchRecord, str | None]:
    """All games of one seating, for each combination of the players' training seeds, and a note if there is one."""
    player_indices = list(dict.fromkeys(seating))
    seats = tuple(player_indices.index(index) for index in seating)
    choices = np.stack(
        np.meshgrid(*(range(len(players[i].seed_players)) for i in player_indices), indexing="ij"), -1
    ).reshape(-1, len(player_indices))

    def play_combination(chosen: np.ndarray) -> GameResults:
        seated: tuple[Player, ...] = tuple(
            players[i].seed_players[c] for i, c in zip(player_indices, chosen, strict=True)
        )
        address = "/".join(f"{players[i].player_name}@{c}" for i, c in zip(player_indices, chosen, strict=True))
        return play_games(env, seated, seats, num_games, fold(seed_key(seed), f"arena/{seats}/{address}"))

    results = [play_combination(chosen) for chosen in choices]
    payoffs = np.stack([np.asarray(result.payoffs, np.float64) for result in results])
    all_identical = num_games > 1 and all(_all_identical(result) for result in results)
    note = f"all {num_games} games were identical, so they count as one" if all_identical else None
    return MatchRecord(seating, choices[:, list(seats)], payoffs), note


def _all_identical(results: GameResults) -> bool:
    columns = np.column_stack([np.asarray(results.move_hashes, np.float64), np.asarray(results.payoffs)])
    return bool((columns == columns[0]).all())


def _match_title(match: MatchRecord, names: tuple[str, ...]) -> str:
    return " against ".join(names[player] for player in dict.fromkeys(match.seating))


def short_names(player_names: list[str]) -> tuple[str, ...]:
    """Short names of players: the last part of each path where it is unique, else the whole path."""
    paths = [name if ":" in name else os.path.normpath(name) for name in player_names]
    last_parts = [name if ":" in name else Path(name).name for name in paths]
    return tuple(name if last_parts.count(name) == 1 else path for name, path in zip(last_parts, paths, strict=True))
