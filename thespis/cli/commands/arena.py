"""``thespis arena``."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from thespis.cli.options import Count, JsonFlag, optional
from thespis.cli.output import Output

if TYPE_CHECKING:
    from thespis.arena.tournament import Standings


@dataclasses.dataclass(frozen=True)
class Arena:
    """Let players play each other in every seat: who is better, by how much, and how sure is that?

    thespis arena runs/ppo runs/a2c bot:random bot:mcts-100 --games 200
    """

    players: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="PLAYER ...")]
    """Runs (runs/ppo, or runs/ppo@3 for its seed 3), bot:random, bot:mcts-100 (tree search with so many simulations a
    move), or module:attribute for your own."""
    env: Annotated[str | None, optional("NAME")] = None
    """Where they play; by default where the runs were trained."""
    games: Count = 100
    """Games of every pair in every order of seats."""
    greedy: bool = False
    """Let trained players take their best action instead of sampling. Without chance the same game is played over and
    over."""
    seeds: Literal["first", "all"] = "first"
    """Who plays for a run: its first training seed, or all of them. Intervals then speak of seeds, not of games."""
    seed: Annotated[int, tyro.conf.arg(metavar="S")] = 0
    """Other seeds give other games."""
    best_response: Annotated[Count, tyro.conf.arg(metavar="STEPS")] = 0
    """Train PPO for so many steps against each player alone, and show what it wins: a best reply wins no less."""
    out: Annotated[str | None, optional("DIR")] = None
    """Write arena.json and arena.png there."""
    json: JsonFlag = False

    def run(self, out: Output) -> int:
        """Play and print."""
        from thespis.arena.tournament import tournament
        from thespis.assembly import use_compilation_cache

        use_compilation_cache()
        standings = tournament(
            list(self.players), self.env, games=self.games, greedy=self.greedy, all_seeds=self.seeds == "all",
            seed=self.seed, best_response=self.best_response,
        )  # fmt: skip
        _show(out, standings)
        if self.out is not None:
            _write(Path(self.out), standings)
            out.say(f"written  {self.out}/arena.json, {self.out}/arena.png")
        out.result(standings.to_json())
        return 0


def _show(out: Output, standings: Standings) -> None:
    from rich.text import Text

    from thespis.cli.output import complain
    from thespis.cli.standings import matrix_table, ratings_table, seats_line

    if standings.ratings is not None:
        out.say(ratings_table(standings))
    for what in standings.shown:
        out.say(matrix_table(standings, what))
    if standings.ratings is not None:
        out.say(Text(seats_line(standings)))
    out.say(Text(_how(standings)))
    for note in standings.notes:
        complain(f"note: {note}")


def _how(standings: Standings) -> str:
    from thespis.evaluation import words
    from thespis.evaluation.ratings import fewest

    several = fewest([len(who.players) for who in standings.entrants])
    unit = f"training seeds ({several} or more)" if several else "games"
    return (
        f"{words.count(standings.games, 'game')} of each pair in each order of seats, {standings.mode.value} play; "
        f"intervals are over {unit}"
    )


def _write(directory: Path, standings: Standings) -> None:
    from thespis.arena.picture import draw
    from thespis.core import disk
    from thespis.runs.text import plain

    text = json.dumps(plain(standings.to_json()), indent=1, allow_nan=False) + "\n"
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in (("arena.json", text.encode()), ("arena.png", draw(standings))):
        with disk.one_line(name, directory), disk.replacing(directory / name) as file:
            file.write(content)
