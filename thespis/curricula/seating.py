"""What curricula that fill seats of a game have in common."""

from __future__ import annotations

from jaxtyping import PyTree

from thespis.core.contracts import Environment, Game, Method
from thespis.core.errors import UserError


def game_of(environment: Environment) -> Game:
    """The game that a world is made of. Raises ``UserError`` if it is none of several players."""
    game = environment.spec.game
    if game is None or game.rules.players < 2:
        raise UserError(f"{environment.spec.name} is no game with opponents (thespis list envs pgx)")
    return game


def only(method: Method, states: PyTree, member: int) -> tuple[Method, PyTree]:
    """The player of a learner that is one. Raises ``UserError`` for any but the first."""
    if member:
        raise UserError(f"this run has one learner: there is no #{member}")
    return method, states
