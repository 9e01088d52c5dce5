"""Games of OpenSpiel: all seats of a game in turn, or all at once where players move together.

What a seat sees is its information state, which is all that it may know, or where a game has none its observation.
Chance moves are drawn here. The run reports what the first seat wins, as for other games of ours.
"""

from __future__ import annotations

import difflib
from typing import Any

import numpy as np

from thespis.core.agents import Group
from thespis.core.errors import UserError, missing_extra
from thespis.core.records import EnvSpec
from thespis.core.spaces import Box, Discrete, dict_space
from thespis.envs.host import snapshot
from thespis.envs.host.many import Many, Told

NAMES = (
    "backgammon", "battleship", "blotto", "breakthrough", "bridge", "checkers", "chess", "connect_four",
    "dark_hex", "first_sealed_auction", "go", "goofspiel", "havannah", "hex", "kuhn_poker", "leduc_poker", "liars_dice",
    "matrix_pd", "matrix_rps", "mancala", "nim", "othello", "oshi_zumo", "phantom_ttt", "pig", "tic_tac_toe",
    "tiny_bridge_2p", "tiny_hanabi", "y",
)  # fmt: skip
"""Some games, known without importing OpenSpiel; any other of its games can be named too."""

SEATS = "seats"


def named(name: str, n: int) -> Many:
    """``n`` games that OpenSpiel calls ``name``, parameters included: ``leduc_poker(players=3)``.

    Raises:
        UserError: if OpenSpiel is missing, has no such game, or the game cannot be shown to a network.
    """
    return Many([Spiel(name) for _ in range(n)])


class Spiel:
    """One game at a time."""

    def __init__(self, name: str):
        self._game = game = _load(name)
        kind = game.get_type()
        if not (kind.provides_information_state_tensor or kind.provides_observation_tensor):
            raise UserError(f"openspiel:{name} shows its players no numbers, and so cannot be learnt")
        self._told = kind.provides_information_state_tensor
        self._shape = tuple(game.information_state_tensor_shape() if self._told else game.observation_tensor_shape())
        self._players, self._random = game.num_players(), np.random.default_rng(0)
        self._state: Any = None
        self.members = ((SEATS, tuple(range(self._players))),)
        self.spec = EnvSpec(
            f"openspiel:{name}",
            dict_space(**{SEATS: Box(self._shape)}),
            dict_space(**{SEATS: Discrete(game.num_distinct_actions())}),
            legal=True,
            time_limit=game.max_game_length(),
            groups=(Group(SEATS, self._players),),
        )

    def begin(self, seed: int | None) -> Told:
        """A new game, cards dealt."""
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self._state = self._game.new_initial_state()
        return self._answer(np.zeros(self._players))

    def step(self, actions: list[Any]) -> Told:
        """The move of the one whose turn it is, or of all."""
        state, before = self._state, np.array(self._state.returns())
        if state.is_simultaneous_node():
            state.apply_actions([int(action) for action in actions])
        else:
            state.apply_action(int(actions[state.current_player()]))
        return self._answer(before)

    def save(self) -> dict[str, np.ndarray]:
        """Where the game stands, and what chance will do."""
        text = "" if self._state is None else self._state.serialize()
        return {"state": np.frombuffer(text.encode(), "uint8"), "random": snapshot.save_random(self._random)}

    def load(self, saved: dict[str, np.ndarray]) -> None:
        """Back to where :meth:`save` was called."""
        self._state = self._game.deserialize_state(bytes(saved["state"]).decode())
        snapshot.load_random(self._random, saved["random"])

    def close(self) -> None:
        """Nothing to release."""

    def _answer(self, before: np.ndarray) -> Told:
        state = self._state
        while state.is_chance_node():
            outcomes, chances = zip(*state.chance_outcomes(), strict=True)
            state.apply_action(outcomes[self._random.choice(len(outcomes), p=np.array(chances) / np.sum(chances))])
        over, seats = state.is_terminal(), range(self._players)
        together = not over and state.is_simultaneous_node()
        alive = np.array([not over and (together or seat == state.current_player()) for seat in seats])
        masks = [np.array(state.legal_actions_mask(seat), bool) if alive[seat] else None for seat in seats]
        look = state.information_state_tensor if self._told else state.observation_tensor
        seen = [np.array(look(seat), "float32").reshape(self._shape) for seat in seats]
        won = (np.array(state.returns()) - before).astype("float32")
        return Told(seen, masks, alive, np.full(self._players, over), won, float(won[0]), over)


def _load(name: str) -> Any:
    try:
        import pyspiel
    except ImportError as error:
        raise missing_extra("open-spiel", "spiel") from error
    bare, known = name.partition("(")[0], pyspiel.registered_names()
    if bare not in known:
        near = difflib.get_close_matches(bare, known, 3, 0.5)
        raise UserError(f"OpenSpiel has no game named {bare!r}" + (f"; nearest: {', '.join(near)}" if near else ""))
    try:
        game: Any = pyspiel.load_game(name)
    except pyspiel.SpielError as error:
        raise UserError(f"openspiel:{name} cannot be made: {str(error).splitlines()[0]}") from error
    if game.get_type().dynamics == pyspiel.GameType.Dynamics.MEAN_FIELD:
        raise UserError(f"openspiel:{name} is a game of uncountably many players, which is not supported")
    return game
