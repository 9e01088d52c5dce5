"""Games of pgx behind the :class:`~thespis.core.contracts.Game` contract.

pgx draws at random which of its players moves first; here players are numbered by the order in which they first move. A
player observes pgx's observation and its own number, which some of pgx's observations do not contain. In card games
whose moves are all public it also observes these moves: then the observation is the player's full information state,
and no memory is needed.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.contracts import GameSpec
from thespis.core.errors import UserError, missing_extra
from thespis.core.spaces import Box, Discrete, dict_space
from thespis.runtime.keys import seed_key

GAME_NAMES = (
    "2048",
    "animal_shogi",
    "backgammon",
    "chess",
    "connect_four",
    "gardner_chess",
    "go_9x9",
    "go_19x19",
    "hex",
    "kuhn_poker",
    "leduc_holdem",
    "othello",
    "shogi",
    "sparrow_mahjong",
    "tic_tac_toe",
)
"""The games that pgx provides, listed without importing it."""

_IMPERFECT_INFO = ("2048", "backgammon", "kuhn_poker", "leduc_holdem", "sparrow_mahjong")  # hidden cards or chance
_MAX_MOVES = {"connect_four": 42, "hex": 122, "kuhn_poker": 3, "leduc_holdem": 8, "othello": 120, "tic_tac_toe": 9}
_DECKS = {"kuhn_poker": ((0, 1, 2), 2), "leduc_holdem": ((0, 0, 1, 1, 2, 2), 3)}
"""Ranks of the cards and the number of cards dealt, for games with hidden cards and public moves."""


class PgxState(eqx.Module):
    """State of a pgx game: pgx's own state, the pgx number of the first player, and the moves so far.

    A move is -1 where there is none yet. Moves are stored for games that observe them, otherwise ``None``.
    """

    pgx_state: PyTree
    first_player: Int[Array, ""]
    move_history: Int[Array, " move"] | None
    num_moves: Int[Array, ""]


class Pgx(eqx.Module):
    """Adapter for the pgx game called ``name``.

    Raises:
        UserError: if pgx is missing or has no such game.
    """

    name: str = eqx.field(static=True)

    @property
    def spec(self) -> GameSpec:
        """Players, spaces and limits."""
        return _load_game(self.name)[1]

    def init(self, key: Key[Array, ""]) -> PgxState:
        """The initial state, with cards dealt."""
        inner = _load_game(self.name)[0].init(key)
        length = _history_length(self.name)
        moves = jnp.full(length, -1, "int32") if length else None
        return PgxState(inner, inner.current_player, moves, jnp.zeros((), "int32"))

    def initial_states(self) -> tuple[Float[np.ndarray, " opening"], PgxState]:
        """Every deal with its probability, or the single initial state of a game without chance.

        Raises:
            UserError: for a game with chance events after the first move.
        """
        if self.name in _IMPERFECT_INFO and self.name not in _DECKS:
            raise UserError(
                f"pgx:{self.name} cannot be expanded into a game tree: it has chance events after the first move"
            )
        position = jax.jit(self.init)(seed_key(0))
        if self.name not in _DECKS:
            return np.ones(1), jax.tree.map(lambda x: x[None], position)
        deck, num_cards = _DECKS[self.name]
        hands, counts = np.unique(list(itertools.permutations(deck, num_cards)), axis=0, return_counts=True)
        return counts / counts.sum(), jax.jit(jax.vmap(lambda cards: self._with_cards(position, cards)))(
            hands.astype("int32")
        )

    def _with_cards(self, position: PgxState, cards: Int[Array, " dealt"]) -> PgxState:
        """``position`` with these cards: the players' cards in the order in which they move, then the public ones."""
        owners = self._pgx_player(position, jnp.arange(self.spec.num_players))
        inner: Any = position.pgx_state
        inner = inner.replace(_cards=cards.at[owners].set(cards[: len(owners)]))
        return eqx.tree_at(lambda p: p.pgx_state, position, inner)

    def step(self, state: PgxState, action: Int[Array, ""], key: Key[Array, ""]) -> PgxState:
        """The state after a legal move; a finished game stays as it is."""
        inner, moves = _load_game(self.name)[0].step(state.pgx_state, action, key), state.move_history
        ongoing = ~self.is_terminal(state)
        if moves is not None:
            moves = jnp.where((jnp.arange(moves.size) == state.num_moves) & ongoing, action, moves)
        return PgxState(inner, state.first_player, moves, state.num_moves + ongoing)

    def current_player(self, state: PgxState) -> Int[Array, ""]:
        """The player to move."""
        return (state.pgx_state.current_player - state.first_player) % self.spec.num_players

    def observe(self, state: PgxState, player: Int[Array, ""]) -> PyTree:
        """pgx's observation as floats (``seen``), the player's number (``seat``), and public ``moves``, one-hot."""
        # the public method warns that it will support the current player only
        pgx_observation = _load_game(self.name)[0]._observe(state.pgx_state, self._pgx_player(state, player))
        observation = {"seat": jnp.asarray(player, "int32"), "seen": pgx_observation.astype("float32")}
        moves = state.move_history
        return observation if moves is None else observation | {"moves": jax.nn.one_hot(moves, self.spec.num_actions)}

    def action_mask(self, state: PgxState) -> Bool[Array, " actions"]:
        """Legal actions of the player to move."""
        return state.pgx_state.legal_action_mask

    def is_terminal(self, state: PgxState) -> Bool[Array, ""]:
        """Whether the game has ended."""
        return jnp.logical_or(state.pgx_state.terminated, state.pgx_state.truncated)

    def rewards(self, state: PgxState) -> Float[Array, " players"]:
        """Every player's reward for the last move."""
        return state.pgx_state.rewards[self._pgx_player(state, jnp.arange(self.spec.num_players))]

    def _pgx_player(self, position: PgxState, player: Int[Array, "*players"]) -> Int[Array, "*players"]:
        return (player + position.first_player) % self.spec.num_players


def _history_length(name: str) -> int:
    return _MAX_MOVES[name] if name in _DECKS else 0


@functools.cache
def _load_game(name: str) -> tuple[Any, GameSpec]:
    try:
        import pgx
    except ImportError as error:
        raise missing_extra("pgx", "games") from error
    if name not in GAME_NAMES:
        raise UserError(f"pgx has no game named {name!r}; see: thespis list envs")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with jax.ensure_compile_time_eval():  # the cache must not hold tracers
            game: Any = pgx.make(name)  # pyright: ignore[reportArgumentType]
        state = jax.eval_shape(game.init, jax.random.key(0))
        observed = jax.eval_shape(game.observe, state)
    actions = len(state.legal_action_mask)
    box = Box(observed.shape, 0.0, 1.0) if observed.dtype == bool else Box(observed.shape)
    moves = {"moves": Box((_history_length(name), actions), 0.0, 1.0)} if _history_length(name) else {}
    observation = dict_space(seat=Discrete(game.num_players), seen=box, **moves)
    perfect = name not in _IMPERFECT_INFO
    return game, GameSpec(f"pgx:{name}", game.num_players, observation, actions, perfect, _MAX_MOVES.get(name))
