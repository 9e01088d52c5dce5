"""Answers of a decoder in this process, many at once, with tokens and log-probabilities as they were sampled.

Every prompt is padded to a width of few (powers of two) and every batch to one number of rows, so that few programs
are compiled. Only prompts of one width share a batch: a row is computed in arrays of the same sizes whatever else is
asked, and draws from keys of its own (the seed, the number of the choice), so it says the same in any company.
"""

from __future__ import annotations

import dataclasses
import functools
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from thespis.core import apart
from thespis.core.keys import key_of
from thespis.language.chat import Conversation, Template, plain, template_of
from thespis.language.configs import LONGEST
from thespis.language.engine import PLAINLY, Answer, Piece, Refused, Request, Talk, Usage, collected
from thespis.language.generation import Drawn, Speaker
from thespis.language.sampling import Apart
from thespis.language.tokens import Tokenizer, tokenizer_of
from thespis.language.utterance import Utterance
from thespis.language.weights import load, read_json
from thespis.nets.decoder import Cache, Decoder

_NARROWEST = 16


@dataclasses.dataclass(frozen=True)
class Ask:
    """The ids of a prompt and how to answer it, made by :meth:`Local.ask`."""

    ids: tuple[int, ...]
    request: Request


@dataclasses.dataclass
class _Row:
    """One row of a batch: to which ask it belongs, its key, and what it has said."""

    ask: int
    choice: int
    prompt: tuple[int, ...]
    request: Request
    seed: int
    said: Utterance


def _everyone(ask: int) -> bool:
    return True


class _Batch(NamedTuple):
    """Rows that are computed together, the width of their prompts and the length of their answers."""

    rows: list[_Row]
    width: int
    length: int


class Local:
    """An :class:`~thespis.language.engine.Engine` over a decoder.

    ``longest``: tokens of a prompt and its answer together; ``rows``: answers of a batch; ``chunk``: tokens drawn
    between two looks at what was said, for strings that stop and for streaming. On a CPU :meth:`answers` computes as
    many batches at a time as there are cores.
    """

    def __init__(
        self,
        model: Decoder,
        tokenizer: Tokenizer,
        template: Template | None = None,
        *,
        longest: int = LONGEST,
        rows: int = 8,
        chunk: int = 8,
    ):
        self.model, self.tokenizer, self.template = model, tokenizer, template or plain(tokenizer)
        self.longest, self.rows, self.chunk = longest, rows, chunk

    def answers(self, talks: Sequence[Talk], request: Request = PLAINLY) -> list[Answer]:
        """An answer to each conversation, in their order. Raises :class:`Refused` for one that is too long."""
        asks = [self.ask(talk, request) for talk in talks]
        pieces: list[list[Piece]] = [[] for _ in asks]
        for batch in self._together(self._batches(asks)):
            for i, piece in batch:
                pieces[i].append(piece)
        usages = [
            Usage(len(ask.ids), sum(len(p.tokens or ()) for p in own)) for ask, own in zip(asks, pieces, strict=True)
        ]
        found = [collected(own, request.n) for own in pieces]
        return [dataclasses.replace(answer, usage=usage) for answer, usage in zip(found, usages, strict=True)]

    def stream(self, talk: Talk, request: Request = PLAINLY) -> Iterator[Piece]:
        """The answer to one conversation, in parts of ``chunk`` tokens."""
        ask, said, left = self.ask(talk, request), 0, request.n
        for _, piece in self.spoken([ask]):
            said, left = said + len(piece.tokens or ()), left - (piece.finish is not None)
            yield piece if left else dataclasses.replace(piece, usage=Usage(len(ask.ids), said))

    def ask(self, talk: Talk, request: Request, shorten: bool = False) -> Ask:
        """A prompt ready to be answered. Raises :class:`Refused` if there is none, or it leaves no room to answer.

        ``shorten``: an answer that is too long for what the prompt leaves may be as long as fits.
        """
        if not isinstance(talk, Conversation):
            talk = Conversation().heard(self.template, self.tokenizer, *talk)
        if not talk.tokens:
            raise Refused("there is nothing to answer: the prompt is empty", "messages")
        if shorten:
            request = dataclasses.replace(request, length=max(1, min(request.length, self.longest - len(talk.tokens))))
        if len(talk.tokens) + request.length > self.longest:
            raise Refused(
                f"{len(talk.tokens)} tokens of prompt and {request.length} of answer are more than this model's "
                f"{self.longest}: shorten the prompt, or ask for a shorter answer",
                "messages",
                "context_length_exceeded",
            )
        return Ask(talk.tokens, request)

    def spoken(self, asks: Sequence[Ask], wanted: Callable[[int], bool] = _everyone) -> Iterator[tuple[int, Piece]]:
        """Parts of the answers as they come, each with the number of its ask.

        ``wanted`` says before each chunk whether an ask is still to be answered; what is not has no end.
        """
        for batch in self._batches(asks):
            yield from self._spoken(batch, wanted)

    def _batches(self, asks: Sequence[Ask]) -> list[_Batch]:
        sizes: dict[tuple[int, int], list[_Row]] = {}
        for i, ask in enumerate(asks):
            seed = secrets.randbits(63) if ask.request.seed is None else ask.request.seed
            size = _bucket(len(ask.ids)), max(_bucket(ask.request.length), self.chunk)
            for choice in range(ask.request.n):
                said = Utterance(self.tokenizer, ask.request, choice)
                sizes.setdefault(size, []).append(_Row(i, choice, ask.ids, ask.request, seed, said))
        return [
            _Batch(rows[first : first + self.rows], *size)
            for size, rows in sizes.items()
            for first in range(0, len(rows), self.rows)
        ]

    def _together(self, batches: list[_Batch]) -> list[list[tuple[int, Piece]]]:
        """All that is said in each batch."""

        def whole(batch: _Batch) -> list[tuple[int, Piece]]:
            return list(self._spoken(batch, _everyone))

        if jax.default_backend() != "cpu":
            return [whole(batch) for batch in batches]
        with apart.threads("batch") as threads:
            return apart.in_turn(threads, whole, batches)

    def _spoken(self, batch: _Batch, wanted: Callable[[int], bool]) -> Iterator[tuple[int, Piece]]:
        rows, width, length = batch.rows, batch.width, batch.length
        tokens, positions = np.zeros((self.rows, width), "int32"), np.full((self.rows, width), -1, "int32")
        for i, row in enumerate(rows):
            tokens[i, : len(row.prompt)], positions[i, : len(row.prompt)] = row.prompt, np.arange(len(row.prompt))
        calls = -(-length // self.chunk)
        cache = _empty(self.model, self.rows, width + calls * self.chunk)
        sampling, seeds = self._sampling(rows), self._seeds(rows)
        for call in range(calls):
            drawn, cache = _say(
                self.model, cache, sampling, seeds, jnp.asarray(tokens), jnp.asarray(positions), jnp.array(call),
                length=self.chunk, stop=self.tokenizer.stop,
            )  # fmt: skip
            said, logs, counts = (np.asarray(x) for x in (drawn.tokens, drawn.log_probs, drawn.counts))
            tokens, positions = np.zeros((self.rows, 1), "int32"), np.full((self.rows, 1), -1, "int32")
            for i, row in enumerate(rows):
                if row.said.finish is not None or not wanted(row.ask):
                    continue
                yield row.ask, row.said.heard(said[i, : counts[i]].tolist(), logs[i, : counts[i]].tolist())
                if row.said.finish is None:
                    tokens[i], positions[i] = row.said.tokens[-1], len(row.prompt) + len(row.said.tokens) - 1
            if (positions < 0).all():
                return

    def _sampling(self, rows: list[_Row]) -> Apart:
        """How each row is sampled; those of padding: plainly."""
        asked = [row.request for row in rows] + [PLAINLY] * (self.rows - len(rows))
        real = np.array([(r.temperature, r.top_p, r.min_p) for r in asked], "float32").T
        temperature, top_p, min_p, top_k = jax.device_put((*real, np.array([r.top_k for r in asked], "int32")))
        return Apart(temperature, top_k, top_p, min_p)

    def _seeds(self, rows: list[_Row]) -> Int[Array, "row 3"]:
        """Low and high half of each row's seed, and the number of its choice."""
        found = np.zeros((self.rows, 3), "uint32")
        for i, row in enumerate(rows):
            found[i] = row.seed & 0xFFFFFFFF, (row.seed >> 32) & 0xFFFFFFFF, row.choice
        return jnp.asarray(found.view("int32"))


def engine_of(directory: Path | str, *, dtype: str = "float32", rows: int = 8, chunk: int = 8) -> Local:
    """The engine of a directory with ``config.json``, safetensors and ``tokenizer.json``.

    Without a chat template it gets :func:`~thespis.language.chat.plain`. Raises ``UserError`` for what is missing.
    """
    config = read_json(Path(directory) / "config.json")
    tokenizer = tokenizer_of(directory)
    template = template_of(directory, plain(tokenizer))
    longest = config.get("max_position_embeddings") or LONGEST
    return Local(load(directory, dtype), tokenizer, template, longest=longest, rows=rows, chunk=chunk)


def _bucket(count: int) -> int:
    return max(_NARROWEST, 1 << (count - 1).bit_length())


@functools.partial(jax.jit, static_argnums=(1, 2))
def _empty(model: Decoder, rows: int, slots: int) -> Cache:
    """Nothing was read; each layer has arrays of its own, as they are to be donated."""
    return model.empty(rows, slots)


@functools.partial(jax.jit, static_argnames=("length", "stop"), donate_argnames=("cache",))
def _say(
    model: Decoder,
    cache: Cache,
    sampling: Apart,
    seeds: Int[Array, "row 3"],
    tokens: Int[Array, "row block"],
    positions: Int[Array, "row block"],
    call: Int[Array, ""],
    **static: Any,
) -> tuple[Drawn, Cache]:
    def key(seed: Array) -> Array:
        found = key_of(seed[0])
        for number in (seed[1], seed[2], call):
            found = jax.random.fold_in(found, number)
        return found

    return Speaker(model, sampling, **static)(cache, tokens, positions, jax.vmap(key)(seeds))
