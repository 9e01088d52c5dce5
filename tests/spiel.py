"""The games that both OpenSpiel and pgx have, and how their moves and cards correspond. For tests that compare."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pyspiel

from thespis.core.game_trees import GameTree
from thespis.envs.games.naming import game


@dataclasses.dataclass(frozen=True)
class Pair:
    """One game in both libraries.

    ``move`` turns our move into OpenSpiel's; ``cards`` are the ranks dealt in a position, players first; ``extra`` are
    moves of ours that OpenSpiel's game does not have.
    """

    name: str
    theirs: str
    move: Callable[[int], int] = lambda move: move
    cards: Callable[[object], list[int]] = lambda position: []
    extra: tuple[int, ...] = ()

    @property
    def ours(self):
        return game(self.name)

    def load(self):
        return pyspiel.load_game(self.theirs)

    def legal(self, mask: np.ndarray) -> list[int]:
        """Our legal moves as OpenSpiel lists them."""
        return sorted(self.move(int(move)) for move in np.flatnonzero(mask) if move not in self.extra)


def dealt(position) -> list[int]:
    """Ranks of the players' cards in the order in which they move, then those on the table."""
    cards, first = np.asarray(position.inner._cards), int(position.first)
    return [int(cards[(seat + first) % 2]) for seat in range(2)] + [int(card) for card in cards[2:]]


PAIRS = {
    pair.name: pair
    for pair in (
        Pair("kuhn_poker", "kuhn_poker", lambda move: 1 - move, dealt),
        Pair("leduc_holdem", "leduc_poker(suit_isomorphism=True)", lambda move: (move + 1) % 3, dealt),
        Pair("tic_tac_toe", "tic_tac_toe"),
        Pair("connect_four", "connect_four"),
        Pair("othello", "othello"),
        Pair("hex", "hex(board_size=11)", extra=(121,)),
        Pair("go_9x9", "go(board_size=9,komi=7.5)"),
    )
}


def information_of(pair: Pair, tree: GameTree) -> dict[str, int]:
    """Our number of every information state of OpenSpiel's, found by playing both side by side."""
    chance, positions = tree.game.openings()
    deals = [pair.cards(_row(positions, i)) for i in range(len(chance))]
    found: dict[str, int] = {}

    def visit(state, cards: list[int], moves: list[int]) -> None:
        if state.is_terminal():
            return
        if state.is_chance_node():
            for card, _ in state.chance_outcomes():
                visit(state.child(card), [*cards, card], moves)
            return
        node = next(i for i, deal in enumerate(deals) if deal[: len(cards)] == cards)
        for move in moves:
            node = int(tree.children[node, move])
        number = int(tree.information[node])
        assert found.setdefault(state.information_state_string(), number) == number
        assert pair.legal(tree.legal[number]) == state.legal_actions()
        assert tree.player[node] == state.current_player()
        for move in np.flatnonzero(tree.legal[number]):
            visit(state.child(pair.move(int(move))), cards, [*moves, int(move)])

    visit(pair.load().new_initial_state(), [], [])
    return found


def as_theirs(pair: Pair, tree: GameTree, table: np.ndarray) -> pyspiel.TabularPolicy:
    """A table of ours as a policy of OpenSpiel's."""

    def row(number: int) -> list[tuple[int, float]]:
        moves = np.flatnonzero(tree.legal[number])
        return sorted((pair.move(int(move)), float(table[number, move])) for move in moves)

    return pyspiel.TabularPolicy({text: row(number) for text, number in information_of(pair, tree).items()})


def as_ours(pair: Pair, tree: GameTree, policy) -> np.ndarray:
    """A policy of OpenSpiel's, asked by the text of an information state, as a table of ours."""
    table = np.zeros(tree.legal.shape)
    for text, number in information_of(pair, tree).items():
        told = dict(policy(text))
        for move in np.flatnonzero(tree.legal[number]):
            table[number, move] = told[pair.move(int(move))]
    return table


def random_table(tree: GameTree, rng: np.random.Generator) -> np.ndarray:
    """A random policy; about one choice in four is never made."""
    weights = rng.exponential(size=tree.legal.shape) * (rng.uniform(size=tree.legal.shape) < 0.75)
    weights = np.where(tree.legal, weights, 0.0)
    weights += np.where(weights.sum(axis=1, keepdims=True) > 0, 0.0, tree.legal)
    return weights / weights.sum(axis=1, keepdims=True)


def _row(tree, i: int):
    import jax

    return jax.tree.map(lambda x: np.asarray(x)[i], tree)
