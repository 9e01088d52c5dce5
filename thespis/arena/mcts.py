"""Monte-Carlo tree search without learning: UCT (Kocsis and Szepesvári 2006, "Bandit based Monte-Carlo planning").

Built on mctx. The value of a new node is the payoff of one uniformly random playout for the player to move. Unvisited
children come first, then those with the largest ``q + c sqrt(ln N / n)``; the move with most visits is played.
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
from thespis.core.records import EnvSpec, View
from thespis.runtime.keys import fold

EXPLORATION_CONSTANT = math.sqrt(2)
"""``c``, for payoffs between -1 and 1."""


class MCTSPlayer(eqx.Module):
    """UCT player of ``game`` with ``num_simulations`` simulations per move."""

    game: Game
    num_simulations: int = eqx.field(static=True)
    group_name: str = eqx.field(static=True)

    @classmethod
    def from_spec(cls, spec: EnvSpec, num_simulations: int) -> MCTSPlayer:
        """The player for an environment. Raises ``UserError`` unless it is a two-player game of perfect information."""
        if not spec.has_game_state or spec.game.spec.num_players != 2:
            raise UserError(
                f"bot:mcts needs a two-player game of perfect information, and {spec.name} is not one: leave it out"
            )
        try:
            import mctx  # noqa: F401
        except ImportError as error:
            raise missing_extra("mctx", "games") from error
        return cls(spec.game, num_simulations, spec.groups[0].name)

    def init_memory(self, n: int) -> PyTree:
        """No memory: every search starts from scratch."""
        return ()

    def act(self, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any]:
        """The same move for both seats; only that of the player to move counts."""
        import mctx

        position, legal = view.game_state, jax.vmap(self.game.action_mask)(view.game_state)
        recurrent_fn: Any = self._recurrent_fn
        root = mctx.RootFnOutput(prior_logits=_legal_logits(legal), value=jnp.zeros(len(legal)), embedding=position)  # pyright: ignore
        tree = mctx.search(
            params=(),
            rng_key=fold(key, "search"),
            root=root,
            recurrent_fn=recurrent_fn,
            root_action_selection_fn=lambda key, tree, node: _select_uct(key, tree, node, 0),
            interior_action_selection_fn=_select_uct,
            num_simulations=self.num_simulations,
            invalid_actions=~legal,
        )
        visits = jnp.where(legal, tree.summary().visit_counts, -1.0)
        move = jnp.argmax(visits + jax.random.uniform(fold(key, "ties"), visits.shape, maxval=0.5), axis=-1)
        return {self.group_name: jnp.broadcast_to(move.astype("int32")[:, None], (len(move), 2))}, memory

    def _recurrent_fn(self, params: PyTree, key: Key[Array, ""], action: Int[Array, " n"], state: PyTree):
        """The recurrent function of mctx: result of a move, with values from the view of the player to move."""
        import mctx

        def per_row(key, action, position):
            player, next_position = self.game.current_player(position), self.game.step(position, action, key)
            next_player, is_over = self.game.current_player(next_position), self.game.is_terminal(next_position)
            sign = jnp.where(next_player == player, 1.0, -1.0)
            reward = jnp.where(self.game.is_terminal(position), 0.0, self.game.rewards(next_position)[player])
            return (
                reward,
                jnp.where(is_over, 0.0, sign),
                _legal_logits(self.game.action_mask(next_position)),
                self._random_playout(next_position, key),
                next_position,
            )

        outputs = jax.vmap(per_row)(jax.random.split(key, len(action)), action, state)
        names = ("reward", "discount", "prior_logits", "value")
        return mctx.RecurrentFnOutput(**dict(zip(names, outputs[:4], strict=True))), outputs[4]

    def _random_playout(self, state: PyTree, key: Key[Array, ""]) -> Float[Array, ""]:
        """Payoff of a uniformly random playout for the player to move; 0 if the game is over."""

        def move(carry):
            position, payoffs, tick = carry
            move_key, env_key = jax.random.split(jax.random.fold_in(key, tick))
            action = jax.random.categorical(move_key, _legal_logits(self.game.action_mask(position)))
            position = self.game.step(position, action.astype("int32"), env_key)
            return position, payoffs + self.game.rewards(position), tick + 1

        start = state, jnp.zeros(self.game.spec.num_players), jnp.zeros((), "int32")
        return jax.lax.while_loop(lambda carry: ~self.game.is_terminal(carry[0]), move, start)[1][
            self.game.current_player(state)
        ]


def _select_uct(key: Key[Array, ""], tree: Any, node: Any, depth: Any) -> Int[Array, ""]:
    """The move with the largest upper confidence bound; illegal moves have prior logits of minus infinity."""
    visits = tree.children_visits[node]
    bound = tree.qvalues(node) + EXPLORATION_CONSTANT * jnp.sqrt(
        jnp.log(tree.node_visits[node]) / jnp.maximum(visits, 1)
    )
    unvisited_score = jax.random.uniform(key, visits.shape) + 1e6
    legal = tree.children_prior_logits[node] > -jnp.inf
    return jnp.argmax(jnp.where(legal, jnp.where(visits == 0, unvisited_score, bound), -jnp.inf)).astype("int32")


def _legal_logits(legal: Bool[Array, "*n actions"]) -> Float[Array, "*n actions"]:
    return jnp.where(legal, 0.0, -jnp.inf)
