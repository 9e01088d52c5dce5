"""Games of TextWorld (Côté et al., 2018) as text worlds: ``textworld:kitchen.z8``. A reward is a gain in score."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from thespis.core.errors import UserError, missing_extra

_STATUS = re.compile(r"\n>[^\n]*\Z")  # the prompt, and a line of status behind it
_BANNER = re.compile(r"^.*(\$\$|\\\$|\\\\).*$\n?", re.M)


class TextWorld:
    """One game file. ``turns``: utterances of an episode; sizes in ids. Raises ``UserError`` if there is no such file.

    A file is one game: all of its episodes begin alike.
    """

    def __init__(self, path: str, turns: int = 20, message: int = 160, utterance: int = 12):
        self.turns, self.message, self.utterance, self._score = turns, message, utterance, 0.0
        library = _library()
        if not Path(path).is_file():
            raise UserError(f"textworld:{path}: there is no such game file (make one with tw-make)")
        wanted = library.EnvInfos(objective=True, description=True, score=True, won=True, lost=True)
        self._env: Any = library.start(path, wanted)

    def reset(self, rng: np.random.Generator) -> str:
        """What is to be done and what is seen, where the game tells them apart; else all that it says."""
        state, self._score = self._env.reset(), 0.0
        told = [text.strip() for text in (state.objective, state.description) if text]
        return "\n".join(told) if told else _plain(state.feedback)

    def step(self, said: str) -> tuple[str, float, bool]:
        """What a command leads to, and by how much the score has grown."""
        state, score, over = self._env.step(said)
        gained, self._score = score - self._score, score
        return _plain(state.feedback), float(gained), bool(over)


def _plain(feedback: str) -> str:
    """What a game says, without its banner and its prompt."""
    return _BANNER.sub("", _STATUS.sub("", feedback.rstrip())).strip()


def _library() -> Any:
    try:
        import textworld
    except ImportError as error:
        raise missing_extra("textworld", "text") from error
    return textworld
