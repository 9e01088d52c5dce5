"""``thespis play``."""

from __future__ import annotations

import dataclasses
import secrets
from typing import Annotated

import tyro

from thespis.cli.options import JsonFlag, optional
from thespis.cli.output import Output
from thespis.cli.training import INTERRUPTED
from thespis.core.errors import UserError


@dataclasses.dataclass(frozen=True)
class Play:
    """Play a game against a trained run, at the terminal. Ctrl-D leaves.

    thespis play runs/ppo --seat 1
    """

    player: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="PLAYER")]
    """Against whom: a run (runs/ppo, or runs/ppo@3 for its seed 3), bot:random, bot:mcts-100 or module:attribute. In a
    game of more than two it sits in all other seats."""
    env: Annotated[str | None, optional("NAME")] = None
    """Which game; by default the one that the run was trained in."""
    seat: Annotated[int, tyro.conf.arg(metavar="I")] = 0
    """Where you sit; 0 moves first."""
    greedy: bool = False
    """Let a run take its best action instead of sampling."""
    seed: Annotated[int | None, optional("S")] = None
    """Deal these cards and draw these actions again; by default others each time."""
    json: JsonFlag = False

    def run(self, out: Output) -> int:
        """Play one game."""
        from thespis.arena.naming import entrant, environment
        from thespis.arena.tournament import short
        from thespis.assembly import use_compilation_cache
        from thespis.cli.person import Match
        from thespis.core.contracts import Mode

        use_compilation_cache()
        name, world = environment([self.player], self.env)
        game = world.spec.game
        if game is None:
            raise UserError(f"{name} is no game in turn: a person can play those of pgx (thespis list envs)")
        if not 0 <= self.seat < game.rules.players:
            raise UserError(f"--seat {self.seat} does not fit: seats of {name} are 0 to {game.rules.players - 1}")
        (player,) = entrant(self.player, world, name, Mode.EXPLOIT if self.greedy else Mode.SAMPLE).players
        (called,) = short([self.player])
        seed = secrets.randbits(31) if self.seed is None else self.seed
        first = "you move first" if self.seat == 0 else f"you sit in seat {self.seat}"
        out.say(f"{name} against {called}: {first} (--seed {seed}); Ctrl-D leaves", markup=False)
        try:
            won = Match(game, player, called, self.seat, seed, out).run()
        except EOFError:
            out.say("\nyou left before the game was over")
            return INTERRUPTED
        out.result({"env": name, "player": self.player, "seat": self.seat, "seed": seed, "payoffs": won})
        return 0
