"""Tree search without learning: UCT (Kocsis and Szepesvári 2006, "Bandit based Monte-Carlo planning") with mctx.

A node is worth what one game, played on from it by legal moves at random, brings to the player to move. Children never
tried come first, then those of largest ``q + c sqrt(ln N / n)``; what is played is the move tried most often.
"""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.contracts import Game
from thespis.core.errors import UserError, missing_extra
from thespis.core.keys import fold
from thespis.core.records import EnvSpec, View

CURIOSITY = math.sqrt(2)
"""``c``, for payoffs between -1 and 1."""


class MCTS(eqx.Module):
    """Plays ``game`` by so many ``simulations`` a move."""

    game: Game
    simulations: int = eqx.field(static=True)
    seats: str = eqx.field(static=True)

    @classmethod
    def of(cls, spec: EnvSpec, simulations: int) -> MCTS:
        """For one world. Raises ``UserError`` where there is no game of two players who see everything."""
        if not spec.searchable or spec.game.rules.players != 2:
            raise UserError(
                f"bot:mcts searches games of two players who see everything, and {spec.name} is none: leave it out"
            )
        try:
            import mctx  # noqa: F401
        except ImportError as error:
            raise missing_extra("mctx", "games") from error
        return cls(spec.game, simulations, spec.groups[0].name)

    def begin(self, n: int) -> PyTree:
        """Nothing to remember: every search begins anew."""
        return ()

    def act(self, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any]:
        """The same move for both seats: whose turn it is takes it."""
        import mctx

        position, legal = view.position, jax.vmap(self.game.legal)(view.position)
        follow: Any = self._follow
        root = mctx.RootFnOutput(prior_logits=_logits(legal), value=jnp.zeros(len(legal)), embedding=position)  # pyright: ignore
        tree = mctx.search(
            params=(),
            rng_key=fold(key, "search"),
            root=root,
            recurrent_fn=follow,
            root_action_selection_fn=lambda key, tree, node: _select(key, tree, node, 0),
            interior_action_selection_fn=_select,
            num_simulations=self.simulations,
            invalid_actions=~legal,
        )
        tried = jnp.where(legal, tree.summary().visit_counts, -1.0)
        move = jnp.argmax(tried + jax.random.uniform(fold(key, "ties"), tried.shape, maxval=0.5), axis=-1)
        return {self.seats: jnp.broadcast_to(move.astype("int32")[:, None], (len(move), 2))}, memory

    def _follow(self, params: PyTree, key: Key[Array, ""], action: Int[Array, " n"], position: PyTree):
        """What a move leads to, in mctx's words: values are those of the player to move."""
        import mctx

        def one(key, action, position):
            mover, after = self.game.player(position), self.game.play(position, action, key)
            following, over = self.game.player(after), self.game.over(after)
            same = jnp.where(following == mover, 1.0, -1.0)
            won = jnp.where(self.game.over(position), 0.0, self.game.payoff(after)[mover])
            return won, jnp.where(over, 0.0, same), _logits(self.game.legal(after)), self._playout(after, key), after

        told = jax.vmap(one)(jax.random.split(key, len(action)), action, position)
        names = ("reward", "discount", "prior_logits", "value")
        return mctx.RecurrentFnOutput(**dict(zip(names, told[:4], strict=True))), told[4]

    def _playout(self, position: PyTree, key: Key[Array, ""]) -> Float[Array, ""]:
        """What a game played on at random brings to the player to move; nothing, if it is over."""

        def move(carry):
            position, won, tick = carry
            drawn, chance = jax.random.split(jax.random.fold_in(key, tick))
            action = jax.random.categorical(drawn, _logits(self.game.legal(position)))
            position = self.game.play(position, action.astype("int32"), chance)
            return position, won + self.game.payoff(position), tick + 1

        begun = position, jnp.zeros(self.game.rules.players), jnp.zeros((), "int32")
        return jax.lax.while_loop(lambda carry: ~self.game.over(carry[0]), move, begun)[1][self.game.player(position)]


def _select(key: Key[Array, ""], tree: Any, node: Any, depth: Any) -> Int[Array, ""]:
    """The move of largest upper confidence bound; illegal ones have logits of minus infinity."""
    tried = tree.children_visits[node]
    bound = tree.qvalues(node) + CURIOSITY * jnp.sqrt(jnp.log(tree.node_visits[node]) / jnp.maximum(tried, 1))
    first = jax.random.uniform(key, tried.shape) + 1e6
    legal = tree.children_prior_logits[node] > -jnp.inf
    return jnp.argmax(jnp.where(legal, jnp.where(tried == 0, first, bound), -jnp.inf)).astype("int32")


def _logits(legal: Bool[Array, "*n actions"]) -> Float[Array, "*n actions"]:
    return jnp.where(legal, 0.0, -jnp.inf)
