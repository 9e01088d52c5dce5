"""Interface of inference engines: a local decoder and a remote endpoint are used in the same way.

A :class:`GenerationConfig` holds the options, a :class:`Completion` the result: text and, where the engine knows them,
token ids and log-probabilities as they were sampled. A learner needs those; a judge or an opponent does not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from thespis.core.errors import UserError
from thespis.language.chat import Conversation, Message

Prompt = Conversation | Sequence[Message]
"""The input of a completion: messages, or a conversation whose tokens must stay as they are."""
TokenLogProbs = tuple[tuple[int, float], ...]
"""The most likely tokens at one position, most likely first: token id and log-probability of each."""
FinishReason = str
"""Why a response ended: ``stop`` (a stop token or stop string), ``length``, or another word of an endpoint."""


class RequestError(UserError):
    """An invalid request. ``field``: the field that is wrong; ``code``: the kind of error."""

    def __init__(self, text: str, field: str | None = None, code: str | None = None):
        super().__init__(text)
        self.field, self.code = field, code


@dataclasses.dataclass(frozen=True)
class GenerationConfig:
    """Options of a completion. Raises :class:`RequestError` for values out of range."""

    temperature: float = 1.0
    """Divides the logits, 0 to 100; 0: greedy."""
    top_p: float = 1.0
    """The smallest set of most likely tokens with this total probability is kept, above 0; 1: all."""
    top_k: int = 0
    """How many of the most likely tokens are kept; 0: all."""
    min_p: float = 0.0
    """Tokens with at least this share of the most likely token's probability are kept; 0: all."""
    max_tokens: int = 256
    """The maximum number of tokens of a response."""
    stop: tuple[str, ...] = ()
    """Stop strings: a response ends before the first of them; its text leaves it out, its tokens do not."""
    seed: int | None = None
    """Equal seeds give equal responses; ``None``: a new random seed each time."""
    n: int = 1
    """The number of responses to each prompt."""
    json_schema: str | None = None
    """A JSON schema, as JSON text: responses are documents that it allows. ``{"type": "object"}``: any JSON object."""

    def __post_init__(self):
        """Refuse values out of range."""
        ranges = {
            "temperature": (0 <= self.temperature <= 100, "from 0 to 100"),
            "top_p": (0 < self.top_p <= 1, "above 0 and at most 1"),
            "top_k": (0 <= self.top_k < 2**31, "0 or more"),
            "min_p": (0 <= self.min_p <= 1, "from 0 to 1"),
            "max_tokens": (self.max_tokens >= 1, "1 or more"),
            "stop": (all(self.stop), "strings that are not empty"),
            "seed": (self.seed is None or -(2**63) <= self.seed < 2**63, "a whole number of 64 bits"),
            "n": (1 <= self.n <= 128, "from 1 to 128"),
        }
        for name, (valid, allowed) in ranges.items():
            if not valid:
                raise RequestError(f"{name} is {getattr(self, name)!r} and must be {allowed}", name)


DEFAULT_GENERATION = GenerationConfig()
"""The default options."""


@dataclasses.dataclass(frozen=True)
class Usage:
    """Numbers of tokens read and generated, over all responses to one prompt."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Tokens read and generated together."""
        return self.prompt_tokens + self.completion_tokens


@dataclasses.dataclass(frozen=True)
class CompletionChunk:
    """A chunk of a streamed completion. ``choice_index``: which of the ``n`` responses it belongs to.

    The last chunk of a response has a ``finish_reason``. Text may come later than its tokens: what may be the beginning
    of a stop string is held back, and so is an incomplete character. ``tokens`` and ``log_probs`` are ``None`` where
    the engine does not know them.
    """

    choice_index: int = 0
    text: str = ""
    tokens: tuple[int, ...] | None = None
    log_probs: tuple[float, ...] | None = None
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    top_log_probs: tuple[TokenLogProbs, ...] | None = None
    """The most likely tokens at each position, if they were requested."""


@dataclasses.dataclass(frozen=True)
class CompletionChoice:
    """One response. ``log_probs`` are those of the distribution that was sampled, one for each generated token.

    At temperature 0 they are those of the model: log-softmax of its logits, without restrictions.
    """

    text: str
    finish_reason: FinishReason
    tokens: tuple[int, ...] | None = None
    log_probs: tuple[float, ...] | None = None
    top_log_probs: tuple[TokenLogProbs, ...] | None = None
    """The most likely tokens at each position, if they were requested."""


@dataclasses.dataclass(frozen=True)
class Completion:
    """The ``n`` responses to one prompt; ``usage`` is ``None`` where an endpoint does not report it."""

    choices: tuple[CompletionChoice, ...]
    usage: Usage | None = None

    @property
    def text(self) -> str:
        """The text of the first response."""
        return self.choices[0].text


@runtime_checkable
class Engine(Protocol):
    """Interface of an inference engine for language models."""

    def generate(self, prompts: Sequence[Prompt], config: GenerationConfig = DEFAULT_GENERATION) -> list[Completion]:
        """A completion for each prompt."""
        ...

    def stream(self, prompt: Prompt, config: GenerationConfig = DEFAULT_GENERATION) -> Iterator[CompletionChunk]:
        """The completion of one prompt, in chunks as they come."""
        ...


def join_chunks(chunks: Iterable[CompletionChunk], n: int) -> Completion:
    """The completion that chunks make together. Raises ``ValueError`` if one of ``n`` responses has no end."""
    choices: list[list[CompletionChunk]] = [[] for _ in range(n)]
    usage = None
    for chunk in chunks:
        choices[chunk.choice_index].append(chunk)
        usage = usage if chunk.usage is None else chunk.usage
    return Completion(tuple(_join_choice(choice_chunks) for choice_chunks in choices), usage)


def _join_choice(chunks: list[CompletionChunk]) -> CompletionChoice:
    finish = next((chunk.finish_reason for chunk in chunks if chunk.finish_reason is not None), None)
    if finish is None:
        raise ValueError("an answer has no end")
    tokens = [t for chunk in chunks if chunk.tokens is not None for t in chunk.tokens]
    log_probs = [x for chunk in chunks if chunk.log_probs is not None for x in chunk.log_probs]
    top = [x for chunk in chunks if chunk.top_log_probs is not None for x in chunk.top_log_probs]
    text = "".join(chunk.text for chunk in chunks)
    return CompletionChoice(
        text,
        finish,
        tuple(tokens) if any(chunk.tokens is not None for chunk in chunks) else None,
        tuple(log_probs) if any(chunk.log_probs is not None for chunk in chunks) else None,
        tuple(top) if any(chunk.top_log_probs is not None for chunk in chunks) else None,
    )
