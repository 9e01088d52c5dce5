"""The games of pgx behind our :class:`~thespis.core.contracts.Game`.

pgx draws by lot which of its players begins; here players are numbered by the order in which they first move, so a seat
is a seat. What a player sees is pgx's observation and its own seat, which some of pgx's observations do not tell, and
in games of cards where all moves are public, these moves: then what is seen is all that a player may know (its
information state), so that no memory is needed.
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

from thespis.core.contracts import Rules
from thespis.core.errors import UserError, missing_extra
from thespis.core.keys import key_of
from thespis.core.spaces import Box, Discrete, dict_space

NAMES = (
    "2048", "animal_shogi", "backgammon", "chess", "connect_four", "gardner_chess", "go_9x9", "go_19x19", "hex",
    "kuhn_poker", "leduc_holdem", "othello", "shogi", "sparrow_mahjong", "tic_tac_toe",
)  # fmt: skip
"""The games pgx brings, known without importing it."""

_HIDDEN = ("2048", "backgammon", "kuhn_poker", "leduc_holdem", "sparrow_mahjong")  # cards or chance
_LONGEST = {"connect_four": 42, "hex": 122, "kuhn_poker": 3, "leduc_holdem": 8, "othello": 120, "tic_tac_toe": 9}
_PACKS = {"kuhn_poker": ((0, 1, 2), 2), "leduc_holdem": ((0, 0, 1, 1, 2, 2), 3)}
"""Ranks, and how many cards are dealt, of games in which cards are hidden and moves are not."""


class Position(eqx.Module):
    """pgx's own state, the number that pgx gave to the player who began, and the moves so far, -1 where none is yet.

    Moves are kept for games that show them, else ``None``.
    """

    inner: PyTree
    first: Int[Array, ""]
    moves: Int[Array, " kept"] | None
    count: Int[Array, ""]


class Pgx(eqx.Module):
    """The game that pgx calls ``name``.

    Raises:
        UserError: if pgx is missing or has no such game.
    """

    name: str = eqx.field(static=True)

    @property
    def rules(self) -> Rules:
        """Players, spaces and limits."""
        return _made(self.name)[1]

    def start(self, key: Key[Array, ""]) -> Position:
        """A first position, cards dealt."""
        inner = _made(self.name)[0].init(key)
        kept = _kept(self.name)
        moves = jnp.full(kept, -1, "int32") if kept else None
        return Position(inner, inner.current_player, moves, jnp.zeros((), "int32"))

    def openings(self) -> tuple[Float[np.ndarray, " opening"], Position]:
        """Every deal with its probability, or the one first position of a game without chance.

        Raises:
            UserError: for a game in which chance goes on after the first move.
        """
        if self.name in _HIDDEN and self.name not in _PACKS:
            raise UserError(f"pgx:{self.name} cannot be written out: chance goes on while it is played")
        position = jax.jit(self.start)(key_of(0))
        if self.name not in _PACKS:
            return np.ones(1), jax.tree.map(lambda x: x[None], position)
        pack, dealt = _PACKS[self.name]
        hands, count = np.unique(list(itertools.permutations(pack, dealt)), axis=0, return_counts=True)
        return count / count.sum(), jax.jit(jax.vmap(lambda cards: self._dealt(position, cards)))(hands.astype("int32"))

    def _dealt(self, position: Position, cards: Int[Array, " dealt"]) -> Position:
        """``position`` with these cards: those of the players in the order in which they move, then open ones."""
        whose = self._theirs(position, jnp.arange(self.rules.players))
        inner: Any = position.inner
        inner = inner.replace(_cards=cards.at[whose].set(cards[: len(whose)]))
        return eqx.tree_at(lambda p: p.inner, position, inner)

    def play(self, position: Position, action: Int[Array, ""], key: Key[Array, ""]) -> Position:
        """The position after a legal move; a game that is over stays as it is."""
        inner, moves = _made(self.name)[0].step(position.inner, action, key), position.moves
        going_on = ~self.over(position)
        if moves is not None:
            moves = jnp.where((jnp.arange(moves.size) == position.count) & going_on, action, moves)
        return Position(inner, position.first, moves, position.count + going_on)

    def player(self, position: Position) -> Int[Array, ""]:
        """Whose move it is."""
        return (position.inner.current_player - position.first) % self.rules.players

    def observe(self, position: Position, player: Int[Array, ""]) -> PyTree:
        """``seen``: pgx's observation as floats; ``seat``: the player's number; ``moves``, each one-hot, if shown."""
        # the public name warns that it will show the player to move alone
        seen = _made(self.name)[0]._observe(position.inner, self._theirs(position, player))
        told = {"seat": jnp.asarray(player, "int32"), "seen": seen.astype("float32")}
        moves = position.moves
        return told if moves is None else told | {"moves": jax.nn.one_hot(moves, self.rules.actions)}

    def legal(self, position: Position) -> Bool[Array, " actions"]:
        """What the player to move may do."""
        return position.inner.legal_action_mask

    def over(self, position: Position) -> Bool[Array, ""]:
        """Whether the game has ended."""
        return jnp.logical_or(position.inner.terminated, position.inner.truncated)

    def payoff(self, position: Position) -> Float[Array, " players"]:
        """What the last move brought to every player."""
        return position.inner.rewards[self._theirs(position, jnp.arange(self.rules.players))]

    def _theirs(self, position: Position, player: Int[Array, "*players"]) -> Int[Array, "*players"]:
        return (player + position.first) % self.rules.players


def _kept(name: str) -> int:
    return _LONGEST[name] if name in _PACKS else 0


@functools.cache
def _made(name: str) -> tuple[Any, Rules]:
    try:
        import pgx
    except ImportError as error:
        raise missing_extra("pgx", "games") from error
    if name not in NAMES:
        raise UserError(f"pgx has no game named {name!r}; see: thespis list envs")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with jax.ensure_compile_time_eval():  # the cache must not hold tracers
            game: Any = pgx.make(name)  # pyright: ignore[reportArgumentType]
        state = jax.eval_shape(game.init, jax.random.key(0))
        observed = jax.eval_shape(game.observe, state)
    actions = len(state.legal_action_mask)
    box = Box(observed.shape, 0.0, 1.0) if observed.dtype == bool else Box(observed.shape)
    moves = {"moves": Box((_kept(name), actions), 0.0, 1.0)} if _kept(name) else {}
    observation = dict_space(seat=Discrete(game.num_players), seen=box, **moves)
    perfect = name not in _HIDDEN
    return game, Rules(f"pgx:{name}", game.num_players, observation, actions, perfect, _LONGEST.get(name))
