"""What answers conversations: a decoder in this process or an endpoint elsewhere, asked in one way.

A :class:`Request` says how to answer, an :class:`Answer` holds what was said: text, and, where the engine knows them,
the token ids and log-probabilities as they were sampled. A learner needs those; a judge or an opponent does not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from thespis.core.errors import UserError
from thespis.language.chat import Conversation, Message

Talk = Conversation | Sequence[Message]
"""What is to be answered: messages, or a conversation whose ids are to stay as they are."""
Finish = str
"""Why an utterance ended: ``stop`` (a token or a string that stops), ``length``, or another word of an endpoint."""


class Refused(UserError):
    """A request that cannot be answered as it is. ``field``: what of it is wrong; ``code``: the kind of mistake."""

    def __init__(self, text: str, field: str | None = None, code: str | None = None):
        super().__init__(text)
        self.field, self.code = field, code


@dataclasses.dataclass(frozen=True)
class Request:
    """How to answer. Raises :class:`Refused` for what is out of range."""

    temperature: float = 1.0
    """Divides the logits, 0 to 100; 0: the likeliest tokens."""
    top_p: float = 1.0
    """The likeliest tokens are kept that are needed for so much probability, above 0; 1: all."""
    top_k: int = 0
    """How many of the likeliest tokens are kept; 0: all."""
    min_p: float = 0.0
    """Tokens are kept that have at least this share of the likeliest token's probability."""
    length: int = 256
    """Tokens of an answer at most."""
    stop: tuple[str, ...] = ()
    """An answer ends where one of these would come; the text does not have it, the token ids do."""
    seed: int | None = None
    """The same one gives the same answer; ``None``: another one each time."""
    n: int = 1
    """Answers to each conversation."""

    def __post_init__(self):
        """Refuse what is out of range."""
        ranges = {
            "temperature": (0 <= self.temperature <= 100, "from 0 to 100"),
            "top_p": (0 < self.top_p <= 1, "above 0 and at most 1"),
            "top_k": (0 <= self.top_k < 2**31, "0 or more"),
            "min_p": (0 <= self.min_p <= 1, "from 0 to 1"),
            "length": (self.length >= 1, "1 or more"),
            "stop": (all(self.stop), "strings that are not empty"),
            "seed": (self.seed is None or -(2**63) <= self.seed < 2**63, "a whole number of 64 bits"),
            "n": (1 <= self.n <= 128, "from 1 to 128"),
        }
        for name, (fits, wanted) in ranges.items():
            if not fits:
                raise Refused(f"{name} is {getattr(self, name)!r} and must be {wanted}", name)


PLAINLY = Request()
"""Nothing asked for in particular."""


@dataclasses.dataclass(frozen=True)
class Usage:
    """Tokens read and tokens said, over all answers to one conversation."""

    prompt: int = 0
    said: int = 0

    @property
    def total(self) -> int:
        """Both together."""
        return self.prompt + self.said


@dataclasses.dataclass(frozen=True)
class Piece:
    """A part of an answer as it comes: ``choice`` says of which of ``n``; the last part has ``finish``.

    Text may come later than its tokens: what may be the beginning of a stop string is held back, and so is half a
    character. ``tokens`` and ``log_probs`` are ``None`` where the engine does not know them.
    """

    choice: int = 0
    text: str = ""
    tokens: tuple[int, ...] | None = None
    log_probs: tuple[float, ...] | None = None
    finish: Finish | None = None
    usage: Usage | None = None


@dataclasses.dataclass(frozen=True)
class Reply:
    """One answer. ``log_probs`` are those of the distribution that was sampled, one for each token said."""

    text: str
    finish: Finish
    tokens: tuple[int, ...] | None = None
    log_probs: tuple[float, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Answer:
    """The ``n`` replies to one conversation; ``usage`` is ``None`` where an endpoint does not say."""

    replies: tuple[Reply, ...]
    usage: Usage | None = None

    @property
    def text(self) -> str:
        """The text of the first reply."""
        return self.replies[0].text


@runtime_checkable
class Engine(Protocol):
    """What answers conversations."""

    def answers(self, talks: Sequence[Talk], request: Request = PLAINLY) -> list[Answer]:
        """An answer to each conversation."""
        ...

    def stream(self, talk: Talk, request: Request = PLAINLY) -> Iterator[Piece]:
        """The answer to one conversation, in parts as they come."""
        ...


def collected(pieces: Iterable[Piece], n: int) -> Answer:
    """The answer that parts make together. Raises ``ValueError`` if one of ``n`` replies has no end."""
    parts: list[list[Piece]] = [[] for _ in range(n)]
    usage = None
    for piece in pieces:
        parts[piece.choice].append(piece)
        usage = usage if piece.usage is None else piece.usage
    return Answer(tuple(_joined(own) for own in parts), usage)


def _joined(pieces: list[Piece]) -> Reply:
    finish = next((p.finish for p in pieces if p.finish is not None), None)
    if finish is None:
        raise ValueError("an answer has no end")
    tokens = [t for p in pieces if p.tokens is not None for t in p.tokens]
    logs = [x for p in pieces if p.log_probs is not None for x in p.log_probs]
    known = any(p.tokens is not None for p in pieces), any(p.log_probs is not None for p in pieces)
    text = "".join(p.text for p in pieces)
    return Reply(text, finish, tuple(tokens) if known[0] else None, tuple(logs) if known[1] else None)
