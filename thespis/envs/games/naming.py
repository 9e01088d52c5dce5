"""Games by name, and the world that a game is unless a run says otherwise."""

from __future__ import annotations

from thespis.core.contracts import Environment, Game
from thespis.envs.games.everyone import Everyone
from thespis.envs.games.pgx import Pgx
from thespis.envs.games.solo import Solo


def game(name: str) -> Game:
    """The game that pgx calls ``name``."""
    return Pgx(name)


def world(name: str) -> Environment:
    """All seats of a game, or the only one."""
    found = game(name)
    return Solo(found) if found.rules.players == 1 else Everyone(found)
