"""Command ``thespis arena``: a tournament between players."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from thespis.cli.options import Count, JsonFlag, TrustOption, optional_arg
from thespis.cli.output import CommandOutput

if TYPE_CHECKING:
    from thespis.arena.tournament import TournamentResult


@dataclasses.dataclass(frozen=True)
class ArenaCommand:
    """Play a tournament of all players against each other in every seat; prints ratings and cross-play with intervals.

    thespis arena runs/ppo runs/a2c bot:random bot:mcts-100 --games 200
    """

    players: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="PLAYER ...")]
    """Runs (runs/ppo, or runs/ppo@3 for its seed 3), bot:random, bot:mcts-100 (tree search with so many simulations per
    move), or module:attribute for your own."""
    env: Annotated[str | None, optional_arg("NAME")] = None
    """The environment; by default the one on which the runs were trained."""
    games: Count = 100
    """Games per pair and seating."""
    greedy: bool = False
    """Let trained players take their best action instead of sampling. In a deterministic game all games are then
    identical."""
    seeds: Literal["first", "all"] = "first"
    """Play with a run's first training seed, or with all of them; then intervals are over seeds instead of games."""
    seed: Annotated[int, tyro.conf.arg(metavar="S")] = 0
    """Random seed of the games."""
    best_response: Annotated[Count, tyro.conf.arg(metavar="STEPS")] = 0
    """Train PPO for so many steps against each player alone and show its payoff, a lower bound on a best response's."""
    out: Annotated[str | None, optional_arg("DIR")] = None
    """Write arena.json and arena.png there."""
    trust: TrustOption = ()
    """A module whose code a run may use, besides that of Thespis; can be repeated (docs/runs.md)."""
    json: JsonFlag = False

    def run(self, out: CommandOutput) -> int:
        """Play the tournament and print the standings."""
        from thespis import api
        from thespis.arena.tournament import run_tournament
        from thespis.training.assembly import enable_compilation_cache

        enable_compilation_cache()
        standings = run_tournament(
            list(self.players),
            self.env,
            num_games=self.games,
            greedy=self.greedy,
            all_seeds=self.seeds == "all",
            seed=self.seed,
            best_response_steps=self.best_response,
            train=api.train,
        )
        _print_standings(out, standings)
        if self.out is not None:
            _write_files(Path(self.out), standings)
            out.print(f"written  {self.out}/arena.json, {self.out}/arena.png")
        out.write_result(standings.to_json())
        return 0


def _print_standings(out: CommandOutput, standings: TournamentResult) -> None:
    from rich.text import Text

    from thespis.cli.output import print_stderr
    from thespis.cli.tables import matrix_table, ratings_table, seat_advantage_line

    if standings.ratings is not None:
        out.print(ratings_table(standings))
    for quantity in standings.quantities:
        out.print(matrix_table(standings, quantity))
    if standings.ratings is not None:
        out.print(Text(seat_advantage_line(standings)))
    out.print(Text(_describe_play(standings)))
    for note in standings.notes:
        print_stderr(f"note: {note}")


def _describe_play(standings: TournamentResult) -> str:
    from thespis.evaluation import formatting
    from thespis.evaluation.ratings import min_seeds

    fewest_seeds = min_seeds([len(player.seed_players) for player in standings.players])
    unit = f"training seeds ({fewest_seeds} or more)" if fewest_seeds else "games"
    return (
        f"{formatting.format_count(standings.num_games, 'game')} per pair and seating, "
        f"{standings.mode.value} play; "
        f"intervals are over {unit}"
    )


def _write_files(directory: Path, standings: TournamentResult) -> None:
    from thespis.arena.plots import plot_standings
    from thespis.runs.serialization import to_jsonable
    from thespis.runtime import disk

    text = json.dumps(to_jsonable(standings.to_json()), indent=1, allow_nan=False) + "\n"
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in (("arena.json", text.encode()), ("arena.png", plot_standings(standings))):
        with disk.as_user_error(name, directory), disk.atomic_write(directory / name) as file:
            file.write(content)
