"""Positions of a game: a net's opinion of them, and the rules as a model for a search."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.distributions import IMPOSSIBLE
from thespis.actors.search import Edge, Place
from thespis.core.contracts import Game, Rules
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.nets.body import Body, Image
from thespis.nets.mlp import Linear, orthogonal


class Opinion(eqx.Module):
    """A net's opinion of what the player to move sees: one body, a policy and a value."""

    body: Body
    moves: Linear
    outcome: Linear

    def __init__(self, rules: Rules, hidden: tuple[int, ...], board: Image, key: Key[Array, ""]):
        body_key, moves_key, outcome_key = jax.random.split(key, 3)
        wide, narrow = orthogonal(2**0.5), orthogonal(0.01)
        self.body = Body(rules.observation, hidden, body_key, init=wide, activation=jax.nn.relu, image=board)
        self.moves = Linear(self.body.size, rules.actions, narrow, moves_key)
        self.outcome = Linear(self.body.size, 1, narrow, outcome_key)

    def __call__(self, observation: PyTree) -> tuple[Float[Array, " n"], Float[Array, ""]]:
        """Logits of all moves, and the payoff to expect, within -1 and 1."""
        features, _ = self.body((), observation)
        return self.moves(features), jnp.tanh(self.outcome(features)[0])


class GameModel(eqx.Module):
    """The rules of a game of two whose payoffs add up to nothing, and a net's opinion of its positions."""

    game: Game
    opinion: Callable[[PyTree], tuple[Array, Array]]

    def seen(self, position: PyTree) -> PyTree:
        """What the player to move sees of one position."""
        return self.game.observe(position, self.game.player(position))

    def look(self, position: PyTree) -> Place:
        """Positions ``[row]`` as the player to move sees them."""
        logits, value = jax.vmap(lambda p: self.opinion(self.seen(p)))(position)
        legal, over = jax.vmap(self.game.legal)(position), jax.vmap(self.game.over)(position)
        return Place(position, jnp.where(legal, logits, IMPOSSIBLE), jnp.where(over, 0.0, value))

    def follow(self, state: PyTree, action: Int[Array, " row"], key: Key[Array, ""]) -> tuple[Edge, Place]:
        """One move. It is the opponent's turn then, or once more the same player's."""

        def move(position: PyTree, action: Array) -> tuple[PyTree, Edge]:
            player, new = self.game.player(position), self.game.play(position, action, key)
            sign = jnp.where(self.game.player(new) == player, 1.0, -1.0)
            return new, Edge(self.game.payoff(new)[player], jnp.where(self.game.over(new), 0.0, sign))

        position, edge = jax.vmap(move)(state, action)
        return edge, self.look(position)


def searchable(spec: EnvSpec) -> Rules:
    """The rules of the game that a world is.

    Raises:
        UserError: if it is none that can be searched with a :class:`GameModel`.
    """
    if spec.game is None or not spec.groups:
        raise UserError(f"{spec.name} is no game of several players with known rules: try --env pgx:connect_four")
    rules = spec.game.rules
    if not rules.perfect:
        raise UserError(
            f"in {spec.name} something is hidden or left to chance, so its positions cannot be searched: use ippo"
        )
    if rules.players != 2:
        raise UserError(f"{spec.name} has {rules.players} players, this search is for games of two: use ippo")
    return rules
