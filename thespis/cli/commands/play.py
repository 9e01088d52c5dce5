"""Command ``thespis play``: a game against a trained run."""

from __future__ import annotations

import dataclasses
import secrets
from typing import Annotated

import tyro

from thespis.cli.options import JsonFlag, TrustOption, optional_arg
from thespis.cli.output import CommandOutput
from thespis.cli.train_session import EXIT_INTERRUPTED
from thespis.core.errors import UserError


@dataclasses.dataclass(frozen=True)
class PlayCommand:
    """Play a game against a trained run at the terminal. Ctrl-D quits.

    thespis play runs/ppo --seat 1
    """

    player: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="PLAYER")]
    """The opponent: a run (runs/ppo, or runs/ppo@3 for its seed 3), bot:random, bot:mcts-100 or module:attribute. In a
    game of more than two players it plays all other seats."""
    env: Annotated[str | None, optional_arg("NAME")] = None
    """The game; by default the one on which the run was trained."""
    seat: Annotated[int, tyro.conf.arg(metavar="I")] = 0
    """Your seat; 0 moves first."""
    greedy: bool = False
    """Let a run take its best action instead of sampling."""
    seed: Annotated[int | None, optional_arg("S")] = None
    """Random seed of cards and sampled actions; by default a new one each time."""
    trust: TrustOption = ()
    """A module whose code a run may use, besides that of Thespis; can be repeated (docs/runs.md)."""
    json: JsonFlag = False

    def run(self, out: CommandOutput) -> int:
        """Play one game against the given players."""
        from thespis.arena.player_names import resolve_match_env, resolve_player
        from thespis.arena.tournament import short_names
        from thespis.cli.human_match import HumanMatch
        from thespis.core.contracts import Mode
        from thespis.training.assembly import enable_compilation_cache

        enable_compilation_cache()
        name, match_env = resolve_match_env([self.player], self.env)
        game = match_env.spec.game
        if game is None:
            raise UserError(f"{name} is not a turn-based game: play one of pgx (thespis list envs)")
        if not 0 <= self.seat < game.spec.num_players:
            raise UserError(f"--seat {self.seat} is out of range: seats of {name} are 0 to {game.spec.num_players - 1}")
        (player,) = resolve_player(
            self.player, match_env, name, Mode.EXPLOIT if self.greedy else Mode.SAMPLE
        ).seed_players
        (opponent_name,) = short_names([self.player])
        seed = secrets.randbits(31) if self.seed is None else self.seed
        seat_text = "you move first" if self.seat == 0 else f"you sit in seat {self.seat}"
        out.print(f"{name} against {opponent_name}: {seat_text} (--seed {seed}); Ctrl-D quits", markup=False)
        try:
            payoffs = HumanMatch(game, player, opponent_name, self.seat, seed, out).run()
        except EOFError:
            out.print("\nyou quit before the end of the game")
            return EXIT_INTERRUPTED
        out.write_result({"env": name, "player": self.player, "seat": self.seat, "seed": seed, "payoffs": payoffs})
        return 0
