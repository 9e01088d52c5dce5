"""TextWorld games (Côté et al., 2018) as string environments: ``textworld:kitchen.z8``. Rewards are score gains."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from thespis.core.errors import UserError, missing_extra

_PROMPT_PATTERN = re.compile(r"\n>[^\n]*\Z")  # the prompt, and a status line behind it
_BANNER_PATTERN = re.compile(r"^.*(\$\$|\\\$|\\\\).*$\n?", re.M)


class TextWorldGame:
    """TextWorld game as a string environment, from one game file.

    An episode has at most ``max_turns`` responses; other sizes are in tokens. A file is one game: all of its episodes
    start in the same state. Raises ``UserError`` if the file does not exist.
    """

    def __init__(self, path: str, max_turns: int = 20, max_message_tokens: int = 160, max_response_tokens: int = 12):
        self.max_turns, self.max_message_tokens, self.max_response_tokens, self._score = (
            max_turns,
            max_message_tokens,
            max_response_tokens,
            0.0,
        )
        library = _import_textworld()
        if not Path(path).is_file():
            raise UserError(f"textworld:{path}: there is no such game file (make one with tw-make)")
        infos = library.EnvInfos(objective=True, description=True, score=True, won=True, lost=True)
        self._env: Any = library.start(path, infos)

    def reset(self, rng: np.random.Generator) -> str:
        """The objective and the description of the room, if the game separates them; otherwise its whole feedback."""
        state, self._score = self._env.reset(), 0.0
        texts = [text.strip() for text in (state.objective, state.description) if text]
        return "\n".join(texts) if texts else _strip_banner(state.feedback)

    def step(self, response: str) -> tuple[str, float, bool]:
        """Execute a command; the reward is the gain in score."""
        state, score, done = self._env.step(response)
        gain, self._score = score - self._score, score
        return _strip_banner(state.feedback), float(gain), bool(done)


def _strip_banner(feedback: str) -> str:
    """The feedback of a game without its banner and its prompt."""
    return _BANNER_PATTERN.sub("", _PROMPT_PATTERN.sub("", feedback.rstrip())).strip()


def _import_textworld() -> Any:
    try:
        import textworld
    except ImportError as error:
        raise missing_extra("textworld", "text") from error
    return textworld
