"""Formatting of string dialogues as token ids: by the environment's own words, or by a formatter from outside."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from thespis.core.spaces import UNKNOWN, Vocabulary, word_vocabulary
from thespis.envs.text.task import RESPONSE_CUE


@runtime_checkable
class FormattedDialogue(Protocol):
    """Interface of a dialogue formatted as tokens."""

    @property
    def tokens(self) -> tuple[int, ...]:
        """All of its tokens."""
        ...


@runtime_checkable
class DialogueFormatter(Protocol):
    """Interface of dialogue formats: earlier tokens never change, and responses are exactly the sampled tokens."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the tokens."""
        ...

    @property
    def empty(self) -> Any:
        """An empty dialogue, a :class:`FormattedDialogue`."""
        ...

    def add_message(self, conversation: Any, message: str, max_tokens: int) -> tuple[Any, int]:
        """Append a message and the response cue, in at most ``max_tokens`` tokens; also returns how many were cut."""
        ...

    def add_response(self, conversation: Any, tokens: list[int]) -> Any:
        """Append the policy's response to the dialogue."""
        ...

    def decode(self, tokens: list[int]) -> str:
        """The text of a response."""
        ...


@dataclasses.dataclass(frozen=True)
class WordDialogue:
    """Formatted dialogue in a closed vocabulary of words."""

    tokens: tuple[int, ...] = ()


class WordFormatter:
    """Dialogue formatter with one token per word, ``<unk>`` for unknown ones.

    A ``>`` asks for a response, ``<end>`` ends one.
    """

    empty = WordDialogue()

    def __init__(self, words: Any):
        listed = words.split() if isinstance(words, str) else list(words)
        self.vocabulary = word_vocabulary((RESPONSE_CUE, *listed))
        self._ids = {word: i for i, word in enumerate(self.vocabulary.words)}

    def encode(self, text: str) -> list[int]:
        """The tokens of words separated by spaces."""
        return [self._ids.get(word, self._ids[UNKNOWN]) for word in text.split()]

    def add_message(self, conversation: WordDialogue, message: str, max_tokens: int) -> tuple[WordDialogue, int]:
        """Append the environment's message, cut to ``max_tokens``, and the cue that asks for a response."""
        message_tokens = self.encode(message)
        cut_tokens = message_tokens[: max_tokens - 1]
        return WordDialogue((*conversation.tokens, *cut_tokens, self._ids[RESPONSE_CUE])), len(message_tokens) - len(
            cut_tokens
        )

    def add_response(self, conversation: WordDialogue, tokens: list[int]) -> WordDialogue:
        """See :class:`DialogueFormatter`; a response that was cut gets an end token."""
        stop = self.vocabulary.eos_tokens
        return WordDialogue((*conversation.tokens, *tokens, *(() if tokens and tokens[-1] in stop else stop[:1])))

    def decode(self, tokens: list[int]) -> str:
        """The words of the tokens, without end tokens."""
        return " ".join(self.vocabulary.words[i] for i in tokens if i not in self.vocabulary.eos_tokens)


FormatterFactory = Callable[[tuple[str, ...]], DialogueFormatter | None] | None
"""Makes the formatter of an actor from the environment's own words, ``()`` if it has none; ``None`` where the actor
uses these words."""


@dataclasses.dataclass(frozen=True)
class TokenizedEnv:
    """String environment (a name, a class, a function or an object) with the maker of its formatter."""

    env: Any
    make_formatter: FormatterFactory = None
