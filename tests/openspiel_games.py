"""Games that both OpenSpiel and pgx have, and how their moves and cards correspond; for comparison tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pyspiel

from thespis.envs.games.factory import make_game
from thespis.envs.games.game_tree import GameTree


@dataclasses.dataclass(frozen=True)
class GamePair:
    """One game in both libraries.

    ``move`` converts our move to OpenSpiel's; ``cards`` are the ranks dealt in a position, players first; ``extra`` are
    our moves that OpenSpiel's game does not have.
    """

    name: str
    openspiel: str
    move: Callable[[int], int] = lambda move: move
    cards: Callable[[object], list[int]] = lambda position: []
    extra: tuple[int, ...] = ()

    @property
    def ours(self):
        return make_game(self.name)

    def load(self):
        return pyspiel.load_game(self.openspiel)

    def legal(self, mask: np.ndarray) -> list[int]:
        """Our legal moves, in OpenSpiel's numbers and order."""
        return sorted(self.move(int(move)) for move in np.flatnonzero(mask) if move not in self.extra)


def dealt_cards(position) -> list[int]:
    """Ranks of the players' cards in the order in which they move, then those on the table."""
    cards, first = np.asarray(position.pgx_state._cards), int(position.first_player)
    return [int(cards[(player + first) % 2]) for player in range(2)] + [int(card) for card in cards[2:]]


PAIRS = {
    game.name: game
    for game in (
        GamePair("kuhn_poker", "kuhn_poker", lambda move: 1 - move, dealt_cards),
        GamePair("leduc_holdem", "leduc_poker(suit_isomorphism=True)", lambda move: (move + 1) % 3, dealt_cards),
        GamePair("tic_tac_toe", "tic_tac_toe"),
        GamePair("connect_four", "connect_four"),
        GamePair("othello", "othello"),
        GamePair("hex", "hex(board_size=11)", extra=(121,)),
        GamePair("go_9x9", "go(board_size=9,komi=7.5)"),
    )
}


def info_state_indices(game: GamePair, tree: GameTree) -> dict[str, int]:
    """Our index of every information state of OpenSpiel, from a traversal of both games."""
    chance, positions = tree.game.initial_states()
    deals = [game.cards(_row(positions, i)) for i in range(len(chance))]
    indices: dict[str, int] = {}

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
        number = int(tree.info_state[node])
        assert indices.setdefault(state.information_state_string(), number) == number
        assert game.legal(tree.action_mask[number]) == state.legal_actions()
        assert tree.current_player[node] == state.current_player()
        for move in np.flatnonzero(tree.action_mask[number]):
            visit(state.child(game.move(int(move))), cards, [*moves, int(move)])

    visit(game.load().new_initial_state(), [], [])
    return indices


def to_openspiel(game: GamePair, tree: GameTree, table: np.ndarray) -> pyspiel.TabularPolicy:
    """Our policy table as an OpenSpiel policy."""

    def row(number: int) -> list[tuple[int, float]]:
        moves = np.flatnonzero(tree.action_mask[number])
        return sorted((game.move(int(move)), float(table[number, move])) for move in moves)

    return pyspiel.TabularPolicy({text: row(number) for text, number in info_state_indices(game, tree).items()})


def from_openspiel(game: GamePair, tree: GameTree, policy) -> np.ndarray:
    """An OpenSpiel policy, a function of the information state string, as our policy table."""
    table = np.zeros(tree.action_mask.shape)
    for text, number in info_state_indices(game, tree).items():
        probabilities = dict(policy(text))
        for move in np.flatnonzero(tree.action_mask[number]):
            table[number, move] = probabilities[game.move(int(move))]
    return table


def random_table(tree: GameTree, rng: np.random.Generator) -> np.ndarray:
    """A random policy; about one action in four has probability 0."""
    weights = rng.exponential(size=tree.action_mask.shape) * (rng.uniform(size=tree.action_mask.shape) < 0.75)
    weights = np.where(tree.action_mask, weights, 0.0)
    weights += np.where(weights.sum(axis=1, keepdims=True) > 0, 0.0, tree.action_mask)
    return weights / weights.sum(axis=1, keepdims=True)


def _row(tree, i: int):
    import jax

    return jax.tree.map(lambda x: np.asarray(x)[i], tree)
