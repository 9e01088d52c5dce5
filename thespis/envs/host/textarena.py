"""TextArena games (Guertler et al., 2025) as string environments: ``textarena:GuessTheNumber-v0``.

The actor plays one seat, sampled for each episode; all others are played by ``opponent``. The observation is the game's
own messages and what others do openly; rewards come at the end, as the game gives them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from thespis.core.errors import UserError, missing_extra

Opponent = Callable[[list[str], np.random.Generator], str]
"""The response of a player who has received these messages since its last turn."""
_MOVE_PATTERN = re.compile(r"'(\[[^\[\]\n']+\])'")
MAX_PLAYERS = 8
"""The largest number of players that is tried, from one on."""


def random_opponent(messages: Sequence[str], rng: np.random.Generator) -> str:
    """Random opponent: a random move from the latest message that lists moves, such as ``'[4]'``, else ``[pass]``."""
    moves = next((matches for message in reversed(messages) if (matches := _MOVE_PATTERN.findall(message))), ["[pass]"])
    return str(rng.choice(moves))


class TextArenaGame:
    """TextArena game as a string environment.

    An episode has at most ``max_turns`` responses; other sizes are in tokens. Raises ``UserError`` for unknown names.
    TextArena uses Python's shared random generator: its random choices after the start of an episode differ between
    runs.
    """

    def __init__(
        self,
        name: str,
        max_turns: int = 8,
        max_message_tokens: int = 400,
        max_response_tokens: int = 16,
        opponent: Opponent = random_opponent,
    ):
        self.max_turns, self.max_message_tokens, self.max_response_tokens, self._opponent = (
            max_turns,
            max_message_tokens,
            max_response_tokens,
            opponent,
        )
        library = _import_textarena()
        try:
            self._env: Any = library.make(f"{name.removesuffix('-raw')}-raw")
        except Exception as error:  # a game may ask for files of its own
            raise UserError(f"textarena:{name} cannot be made: {error}") from error
        self._players, self._seat, self._rng = self._min_players(name), 0, np.random.default_rng(0)

    def reset(self, rng: np.random.Generator) -> str:
        """Start a game and play up to the actor's first turn. A game that ends before that is started again."""
        self._rng = rng
        while True:
            self._seat = int(rng.integers(self._players))
            self._env.reset(num_players=self._players, seed=int(rng.integers(2**31)))
            message, done = self._play_until_turn()
            if not done:
                return message

    def step(self, response: str) -> tuple[str, float, bool]:
        """The actor's move, put in brackets if it has none, and all other moves up to the actor's next turn."""
        done, _ = self._env.step(response if "[" in response else f"[{response}]")
        message, done = ("", True) if done else self._play_until_turn()
        rewards = self._env.state.rewards if done else None
        return message, float((rewards or {}).get(self._seat, 0.0)), done

    def _play_until_turn(self) -> tuple[str, bool]:
        """The message for the actor at its next turn, and whether the game has ended before that."""
        while True:
            player, observation = self._env.get_observation()
            messages = [str(text) for sender, text, *_ in observation if sender != player]
            if player == self._seat:
                return "\n".join(dict.fromkeys(messages)), False
            if self._env.step(self._opponent(messages, self._rng))[0]:
                return "", True

    def _min_players(self, name: str) -> int:
        """The smallest number of players that the game allows."""
        reason = ""
        for count in range(1, MAX_PLAYERS + 1):
            try:
                self._env.reset(num_players=count, seed=0)
                return count
            except Exception as error:  # each game refuses in its own way
                reason = str(error)
        raise UserError(f"textarena:{name} cannot be played by 1 to {MAX_PLAYERS} players: {reason}")


def _import_textarena() -> Any:
    try:
        import textarena
    except ImportError as error:
        raise missing_extra("textarena", "text") from error
    return textarena
