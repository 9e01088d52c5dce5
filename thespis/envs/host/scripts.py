"""How the strings of a user's text world become token ids and back: by words of its own, or as somebody else writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from thespis.core.vocabulary import UNKNOWN, Vocabulary, closed
from thespis.envs.text.task import ASK


@runtime_checkable
class Written(Protocol):
    """A conversation so far."""

    @property
    def tokens(self) -> tuple[int, ...]:
        """All of its ids."""
        ...


@runtime_checkable
class Script(Protocol):
    """A way to write conversations. What was written stays as it is; utterances are the very ids that were sampled."""

    @property
    def vocabulary(self) -> Vocabulary:
        """What ids mean."""
        ...

    @property
    def begun(self) -> Any:
        """A conversation in which nothing was said yet, :class:`Written`."""
        ...

    def heard(self, talk: Any, message: str, longest: int) -> tuple[Any, int]:
        """With what the world says and what asks for an answer, in ``longest`` ids; how many had to be left out."""
        ...

    def said(self, talk: Any, ids: list[int]) -> Any:
        """With an utterance."""
        ...

    def text(self, ids: list[int]) -> str:
        """What an utterance says."""
        ...


@dataclasses.dataclass(frozen=True)
class Line:
    """A conversation in a closed vocabulary."""

    tokens: tuple[int, ...] = ()


class Words:
    """A word is an id, unknown ones are ``<unk>``; ``>`` asks for an answer, ``<end>`` ends an utterance."""

    begun = Line()

    def __init__(self, words: Any):
        listed = words.split() if isinstance(words, str) else list(words)
        self.vocabulary = closed((ASK, *listed))
        self._ids = {word: i for i, word in enumerate(self.vocabulary.words)}

    def ids(self, text: str) -> list[int]:
        """The ids of words with spaces between them."""
        return [self._ids.get(word, self._ids[UNKNOWN]) for word in text.split()]

    def heard(self, talk: Line, message: str, longest: int) -> tuple[Line, int]:
        """See :class:`Script`."""
        ids = self.ids(message)
        kept = ids[: longest - 1]
        return Line((*talk.tokens, *kept, self._ids[ASK])), len(ids) - len(kept)

    def said(self, talk: Line, ids: list[int]) -> Line:
        """See :class:`Script`; an utterance that was cut is ended."""
        stop = self.vocabulary.stop
        return Line((*talk.tokens, *ids, *(() if ids and ids[-1] in stop else stop[:1])))

    def text(self, ids: list[int]) -> str:
        """See :class:`Script`."""
        return " ".join(self.vocabulary.words[i] for i in ids if i not in self.vocabulary.stop)


Other = Callable[[tuple[str, ...]], Script | None] | None
"""The script of whoever speaks: given the world's own words, ``()`` if it has none, it is ``None`` where these are what
that one speaks."""


@dataclasses.dataclass(frozen=True)
class Spelt:
    """A world of strings (a name, a class, a function or an object) and who writes it down."""

    world: Any
    script: Other = None
