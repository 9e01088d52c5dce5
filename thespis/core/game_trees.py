"""Small games written out: every position once, as flat arrays, level by level.

Positions that are equal are one node, so that a game of perfect information is as large as it has positions, not
histories. A player's **information state** is what it sees when it is its move: the same number stands for all nodes
that it cannot tell apart.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped

from thespis.core.contracts import Game
from thespis.core.errors import UserError
from thespis.core.keys import key_of

MOST = 200_000
"""Nodes of the largest game that is written out."""

_ROWS = 512  # positions that one call of a compiled function takes


@runtime_checkable
class Enumerable(Protocol):
    """A :class:`~thespis.core.contracts.Game` whose chance is spent when it begins: then only moves decide."""

    def openings(self) -> tuple[Float[np.ndarray, " opening"], PyTree]:
        """The probability of every first position, and these positions, leading axis ``[opening]``.

        Raises ``UserError`` for a game in which chance goes on.
        """
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class GameTree:
    """A game written out. Nodes are ordered by the number of moves before them; the first ones are the openings.

    ``levels[d] : levels[d + 1]`` are the nodes after ``d`` moves. ``player`` is whose move it is and ``information``
    what it knows (-1 where the game is over); ``children`` follows each legal choice (-1: none); ``payoff`` is what the
    move that led to a node brought to every player. Of each information state: its ``owner``, ``legal`` choices, what
    it looks like (``seen``, see :func:`flat`), and one position of those that it may be (``positions``).
    """

    game: Game
    levels: tuple[int, ...]
    chance: Float[np.ndarray, " opening"]
    player: Int[np.ndarray, " node"]
    information: Int[np.ndarray, " node"]
    children: Int[np.ndarray, "node action"]
    payoff: Float[np.ndarray, "node player"]
    owner: Int[np.ndarray, " information"]
    legal: Bool[np.ndarray, "information action"]
    seen: Float[np.ndarray, "information numbers"]
    positions: PyTree


def flat(player: Int[Array, ""], observation: PyTree) -> Float[Array, " numbers"]:
    """What one player sees as a row of numbers that begins with the player's own."""
    parts = [jnp.asarray(player), *jax.tree.leaves(observation)]
    return jnp.concatenate([jnp.ravel(part).astype("float32") for part in parts])


@functools.cache
def game_tree(game: Game, most: int = MOST) -> GameTree:
    """``game`` written out, once in a process.

    Raises:
        UserError: if chance goes on while it is played, it has more than ``most`` nodes, or what players see does not
            tell them all that they have seen and done before.
    """
    if not isinstance(game, Enumerable):
        raise UserError(f"{game.rules.name} cannot be written out: it has no openings()")
    with jax.ensure_compile_time_eval():  # also where a method's init is being compiled
        tree = _written(game, *game.openings(), most)
    _check_information(tree)
    return tree


def _written(game: Game, chance: Any, openings: PyTree, most: int) -> GameTree:
    look, play = _in_rows(functools.partial(_look, game)), _in_rows(lambda p, move: game.play(p, move, key_of(0)))
    level, starts, found = jax.tree.map(np.asarray, openings), [0], []
    while True:
        over, *told = look(level)
        rows, moves = np.nonzero(told[1] & ~over[:, None])
        starts.append(starts[-1] + len(over))
        children = np.full(told[1].shape, -1, "int32")
        found.append((over, *told, children, level))
        if not len(rows):
            break
        if starts[-1] + len(rows) > most:
            raise UserError(f"{game.rules.name} is too large to be written out: it has more than {most:,} positions")
        after = play(jax.tree.map(lambda x, rows=rows: x[rows], level), moves.astype("int32"))
        kept, number = _distinct(_as_bytes(after))
        children[rows, moves] = starts[-1] + number
        level = jax.tree.map(lambda x, kept=kept: x[kept], after)
    columns = [jax.tree.map(lambda *x: np.concatenate(x), *column) for column in zip(*found, strict=True)]
    over, player, legal, payoff, seen, children, positions = columns
    return _with_information(game, tuple(starts), chance, over, player, legal, payoff, seen, children, positions)


def _with_information(game, starts, chance, over, player, legal, payoff, seen, children, positions) -> GameTree:
    going = np.flatnonzero(~over)
    first, number = _distinct(_as_bytes(seen[going]))
    information = np.full(len(over), -1, "int32")
    information[going] = number
    kept = going[first]
    return GameTree(
        game, starts, chance, np.where(over, -1, player), information, children,
        payoff.astype("float64"), player[kept], legal[kept], seen[kept], jax.tree.map(lambda x: x[kept], positions),
    )  # fmt: skip


def _look(game: Game, position: PyTree) -> tuple[Array, ...]:
    player = game.player(position)
    seen = flat(player, game.observe(position, player))
    return game.over(position), player, game.legal(position), game.payoff(position), seen


def _in_rows(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` over rows of numpy, so many at a time, so that it is compiled once for any number of them."""
    compiled = jax.jit(jax.vmap(function))

    def over(*rows: PyTree) -> PyTree:
        count = len(jax.tree.leaves(rows)[0])
        pieces = []
        for start in range(0, count, _ROWS):
            index = np.minimum(np.arange(start, start + _ROWS), count - 1)
            pieces.append(compiled(*jax.tree.map(lambda x, index=index: x[index], rows)))
        return jax.tree.map(lambda *x: np.concatenate(x)[:count], *pieces)

    return over


def _as_bytes(rows: PyTree) -> Shaped[np.ndarray, "row bytes"]:
    leaves = jax.tree.leaves(rows)
    count = len(leaves[0])
    columns = [np.ascontiguousarray(leaf).reshape(count, -1).view("uint8") for leaf in leaves if leaf.size]
    return np.concatenate(columns, axis=1)


def _distinct(rows: Shaped[np.ndarray, "row bytes"]) -> tuple[Int[np.ndarray, " kept"], Int[np.ndarray, " row"]]:
    """The first of each kind of row, in order, and of every row its kind's place in that order."""
    whole = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1]))).ravel()
    _, first, number = np.unique(whole, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return first[order], np.argsort(order)[number].astype("int32")


def _check_information(tree: GameTree) -> None:
    """Players must know what they have seen and done, or what they see is no information state."""
    name, players = tree.game.rules.name, tree.payoff.shape[1]
    depth = np.repeat(np.arange(len(tree.levels) - 1), np.diff(tree.levels))
    going = np.flatnonzero(tree.information >= 0)
    of = tree.information[going]
    alike = tree.game.rules.perfect or _same_within(of, _last_decisions(tree, players)[going, tree.player[going]])
    if not (alike and _same_within(of, depth[going])):
        raise UserError(f"{name} cannot be judged: what players see does not tell all that they have seen and done")
    if not np.array_equal(tree.legal[of], tree.children[going] >= 0):
        raise UserError(f"{name} cannot be judged: what is legal for a player depends on what it does not see")


def _same_within(group: Int[np.ndarray, " row"], value: Int[np.ndarray, " row"]) -> bool:
    pairs = np.unique(np.stack([group, value], axis=1), axis=0)
    return len(pairs) == len(np.unique(group))


def _last_decisions(tree: GameTree, players: int) -> Int[np.ndarray, "node player"]:
    """Of every player, its last information state and choice before each node, as one number; -1 before any."""
    last = np.full((len(tree.player), players), -1, "int64")
    rows, moves = np.nonzero(tree.children >= 0)
    for start, end in zip(tree.levels[:-1], tree.levels[1:], strict=True):
        here = (rows >= start) & (rows < end)
        node, move = rows[here], moves[here]
        child, mover = tree.children[node, move], tree.player[node]
        last[child] = last[node]
        last[child, mover] = tree.information[node] * tree.children.shape[1] + move
    return last
