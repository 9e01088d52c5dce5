"""Games of TextArena (Guertler et al., 2025) as text worlds: ``textarena:GuessTheNumber-v0``.

One seat is the actor's, drawn anew for each episode; all others are played by ``opponent``. The game's own messages and
what others do openly are heard; rewards come at the end, as the game gives them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from thespis.core.errors import UserError, missing_extra

Opponent = Callable[[list[str], np.random.Generator], str]
"""What a player says who has heard these messages since its last turn."""
_MOVE = re.compile(r"'(\[[^\[\]\n']+\])'")
MOST = 8
"""Players tried for, from one on."""


def at_random(heard: Sequence[str], rng: np.random.Generator) -> str:
    """One of the moves that the last message names which names any, such as ``'[4]'``; ``[pass]`` if none does."""
    named = next((found for message in reversed(heard) if (found := _MOVE.findall(message))), ["[pass]"])
    return str(rng.choice(named))


class TextArena:
    """One game. ``turns``: utterances of an episode; sizes in ids. Raises ``UserError`` for unknown names.

    TextArena draws from Python's shared generator: what is drawn after an episode's beginning differs between runs.
    """

    def __init__(
        self, name: str, turns: int = 8, message: int = 400, utterance: int = 16, opponent: Opponent = at_random
    ):
        self.turns, self.message, self.utterance, self._opponent = turns, message, utterance, opponent
        library = _library()
        try:
            self._env: Any = library.make(f"{name.removesuffix('-raw')}-raw")
        except Exception as error:  # a game may ask for files of its own
            raise UserError(f"textarena:{name} cannot be made: {error}") from error
        self._players, self._seat, self._rng = self._smallest(name), 0, np.random.default_rng(0)

    def reset(self, rng: np.random.Generator) -> str:
        """A fresh game, others having moved up to the actor's first turn. A game that ends before is begun again."""
        self._rng = rng
        while True:
            self._seat = int(rng.integers(self._players))
            self._env.reset(num_players=self._players, seed=int(rng.integers(2**31)))
            message, over = self._to_actor()
            if not over:
                return message

    def step(self, said: str) -> tuple[str, float, bool]:
        """The actor's move, in brackets if it has none, and all up to its next turn."""
        over, _ = self._env.step(said if "[" in said else f"[{said}]")
        message, over = ("", True) if over else self._to_actor()
        rewards = self._env.state.rewards if over else None
        return message, float((rewards or {}).get(self._seat, 0.0)), over

    def _to_actor(self) -> tuple[str, bool]:
        """What the actor hears until its turn, and whether the game has ended before."""
        while True:
            player, seen = self._env.get_observation()
            heard = [str(what) for who, what, *_ in seen if who != player]
            if player == self._seat:
                return "\n".join(dict.fromkeys(heard)), False
            if self._env.step(self._opponent(heard, self._rng))[0]:
                return "", True

    def _smallest(self, name: str) -> int:
        """The smallest number of players that the game takes."""
        said = ""
        for count in range(1, MOST + 1):
            try:
                self._env.reset(num_players=count, seed=0)
                return count
            except Exception as error:  # each game refuses in its own way
                said = str(error)
        raise UserError(f"textarena:{name} cannot be played by 1 to {MOST} players: {said}")


def _library() -> Any:
    try:
        import textarena
    except ImportError as error:
        raise missing_extra("textarena", "text") from error
    return textarena
