"""Batched local inference with a decoder: completions with tokens and log-probabilities as they were sampled.

Every prompt is padded to one of a few widths (powers of two) and every batch to a fixed number of rows, so that few
programs are compiled. Only prompts of one width share a batch: a row is computed in arrays of the same sizes whatever
else is requested, and samples with a key of its own (from the seed and the index of the choice), so its result does not
depend on the other rows.
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

from thespis.language.chat import ENVIRONMENT, ChatTemplate, Conversation, default_template, load_template
from thespis.language.checkpoints import checkpoint_directory
from thespis.language.detokenizer import IncrementalDetokenizer
from thespis.language.engine import (
    DEFAULT_GENERATION,
    Completion,
    CompletionChunk,
    GenerationConfig,
    Prompt,
    RequestError,
    TokenLogProbs,
    Usage,
    join_chunks,
)
from thespis.language.generation import GenerationOutput, ResponseGenerator
from thespis.language.grammar import Grammar, NoGrammar
from thespis.language.hf_config import DEFAULT_MAX_LENGTH
from thespis.language.hf_weights import load_pretrained, read_json
from thespis.language.json_constraint import JsonConstraint, JsonConstraints, MaskGrammar
from thespis.language.sampling import LOWEST_LOG_PROB, PerRowSampler
from thespis.language.tokenizer import Tokenizer, load_tokenizer
from thespis.nets.decoder import Decoder, KVCache
from thespis.runtime import vmap_exact
from thespis.runtime.keys import seed_key

_MIN_PROMPT_WIDTH = 16
MAX_TOP_TOKENS = 20
"""How many of the most likely tokens at each position the engine can return."""
_CHARACTERS_PER_TOKEN = 16  # more than any natural text or code has on average
_CUT_TOKENS = 64  # tokens that a text may have in excess because it was cut within a word


@dataclasses.dataclass(frozen=True)
class TokenizedPrompt:
    """The tokens of a prompt and its generation config, made by :meth:`LocalEngine.tokenize_prompt`."""

    tokens: tuple[int, ...]
    config: GenerationConfig
    num_top_tokens: int = 0
    """How many of the most likely tokens are returned at each position, at most :data:`MAX_TOP_TOKENS`."""


@dataclasses.dataclass
class _BatchRow:
    """One row of a batch: the prompt and choice it belongs to, its seed, and its response so far."""

    prompt_index: int
    choice_index: int
    prompt_tokens: tuple[int, ...]
    config: GenerationConfig
    seed: int
    response: IncrementalDetokenizer
    num_top_tokens: int
    constraint: JsonConstraint | None


def _always_active(prompt_index: int) -> bool:
    return True


class _Batch(NamedTuple):
    """Rows that are computed together, the width of their prompts and the maximum length of their responses.

    ``num_top_tokens``: how many of the most likely tokens are computed for each of them, all or none. ``constrained``:
    whether responses are constrained, which needs a mask from the host before every token.
    """

    rows: list[_BatchRow]
    prompt_width: int
    max_tokens: int
    num_top_tokens: int
    constrained: bool


class LocalEngine:
    """An :class:`~thespis.language.engine.Engine` over a decoder in this process.

    ``max_length``: tokens of a prompt and its response together. ``batch_size``: rows of a batch. ``chunk_size``:
    tokens sampled between two checks of the output, for stop strings and for streaming. On a CPU :meth:`generate` runs
    as many batches at a time as there are cores.
    """

    def __init__(
        self,
        model: Decoder,
        tokenizer: Tokenizer,
        template: ChatTemplate | None = None,
        *,
        max_length: int = DEFAULT_MAX_LENGTH,
        batch_size: int = 8,
        chunk_size: int = 8,
    ):
        self.model, self.tokenizer, self.template = model, tokenizer, template or default_template(tokenizer)
        self.max_length, self.batch_size, self.chunk_size = max_length, batch_size, chunk_size

    @functools.cached_property
    def json_constraints(self) -> JsonConstraints:
        """Maker of constraints for responses in JSON; needs llguidance."""
        return JsonConstraints(self.tokenizer, self.model.config.vocab_size)

    def generate(self, prompts: Sequence[Prompt], config: GenerationConfig = DEFAULT_GENERATION) -> list[Completion]:
        """A completion for each prompt, in order. Raises :class:`RequestError` for a prompt that is too long."""
        tokenized = [self.tokenize_prompt(prompt, config) for prompt in prompts]
        chunks: list[list[CompletionChunk]] = [[] for _ in tokenized]
        for batch in self._run_batches(self._make_batches(tokenized)):
            for i, chunk in batch:
                chunks[i].append(chunk)
        usages = [
            Usage(len(prompt.tokens), sum(len(chunk.tokens or ()) for chunk in prompt_chunks))
            for prompt, prompt_chunks in zip(tokenized, chunks, strict=True)
        ]
        completions = [join_chunks(prompt_chunks, config.n) for prompt_chunks in chunks]
        return [
            dataclasses.replace(completion, usage=usage) for completion, usage in zip(completions, usages, strict=True)
        ]

    def stream(self, prompt: Prompt, config: GenerationConfig = DEFAULT_GENERATION) -> Iterator[CompletionChunk]:
        """The completion of one prompt, in chunks of ``chunk_size`` tokens."""
        tokenized, num_tokens, num_active = self.tokenize_prompt(prompt, config), 0, config.n
        for _, chunk in self.stream_batch([tokenized]):
            num_tokens += len(chunk.tokens or ())
            num_active -= chunk.finish_reason is not None
            yield chunk if num_active else dataclasses.replace(chunk, usage=Usage(len(tokenized.tokens), num_tokens))

    def tokenize_prompt(
        self, prompt: Prompt | str, config: GenerationConfig, clip_max_tokens: bool = False
    ) -> TokenizedPrompt:
        """Tokenize a prompt; a text is taken as it is, without the chat template.

        Raises :class:`RequestError` if it is empty, or leaves no room for a response. A text that cannot fit is refused
        before all of it is tokenized. ``clip_max_tokens``: reduce ``max_tokens`` to what the prompt leaves room for,
        instead of raising.
        """
        if config.json_schema is not None:
            self.json_constraints.check(config.json_schema)
        if isinstance(prompt, str):
            self._check_text_length(prompt)
            tokens = tuple(self.tokenizer.encode(prompt))
            prompt = Conversation(tokens, (ENVIRONMENT,) * len(tokens))
        elif not isinstance(prompt, Conversation):
            contents = (message.get("content") for message in prompt)
            self._check_text_length("".join(content for content in contents if isinstance(content, str)))
            prompt = Conversation().add_messages(self.template, self.tokenizer, *prompt)
        if not prompt.tokens:
            raise RequestError("there is nothing to answer: the prompt is empty", "messages")
        if clip_max_tokens:
            config = dataclasses.replace(
                config, max_tokens=max(1, min(config.max_tokens, self.max_length - len(prompt.tokens)))
            )
        if len(prompt.tokens) + config.max_tokens > self.max_length:
            raise RequestError(
                f"{len(prompt.tokens)} tokens of prompt and {config.max_tokens} of answer are more than this model's "
                f"{self.max_length}: shorten the prompt, or ask for a shorter answer",
                "messages",
                "context_length_exceeded",
            )
        return TokenizedPrompt(prompt.tokens, config)

    def _check_text_length(self, text: str) -> None:
        """Raise :class:`RequestError` if a text must have more than ``max_length`` tokens, judged by its beginning."""
        size = _CHARACTERS_PER_TOKEN * self.max_length
        if len(text) <= size or (
            len(text) <= self.tokenizer.longest_token * self.max_length
            and len(self.tokenizer.encode(text[:size])) <= self.max_length + _CUT_TOKENS
        ):
            return
        raise RequestError(
            f"a prompt of {len(text)} characters is more than this model's {self.max_length} tokens: shorten it",
            "messages",
            "context_length_exceeded",
        )

    def stream_batch(
        self, prompts: Sequence[TokenizedPrompt], is_active: Callable[[int], bool] = _always_active
    ) -> Iterator[tuple[int, CompletionChunk]]:
        """Chunks of the completions as they come, each with the index of its prompt.

        ``is_active`` is called with that index before each chunk: a prompt that is no longer active gets no more
        chunks, and no finish reason.
        """
        for batch in self._make_batches(prompts):
            yield from self._run_batch(batch, is_active)

    def _make_batches(self, prompts: Sequence[TokenizedPrompt]) -> list[_Batch]:
        sizes: dict[tuple[int, int, int, bool], list[_BatchRow]] = {}
        for i, prompt in enumerate(prompts):
            seed = secrets.randbits(63) if prompt.config.seed is None else prompt.config.seed
            num_computed = MAX_TOP_TOKENS if prompt.num_top_tokens else 0
            schema, length = prompt.config.json_schema, max(_bucket(prompt.config.max_tokens), self.chunk_size)
            size = _bucket(len(prompt.tokens)), length, num_computed, schema is not None
            for choice in range(prompt.config.n):
                response = IncrementalDetokenizer(self.tokenizer, prompt.config, choice)
                constraint = None if schema is None else self.json_constraints.start(schema)
                row = (i, choice, prompt.tokens, prompt.config, seed, response, prompt.num_top_tokens, constraint)
                sizes.setdefault(size, []).append(_BatchRow(*row))
        return [
            _Batch(rows[first : first + self.batch_size], *size)
            for size, rows in sizes.items()
            for first in range(0, len(rows), self.batch_size)
        ]

    def _run_batches(self, batches: list[_Batch]) -> list[list[tuple[int, CompletionChunk]]]:
        """All chunks of each batch."""

        def run(batch: _Batch) -> list[tuple[int, CompletionChunk]]:
            return list(self._run_batch(batch, _always_active))

        if jax.default_backend() != "cpu":
            return [run(batch) for batch in batches]
        with vmap_exact.thread_pool("batch") as threads:
            return vmap_exact.thread_map(threads, run, batches)

    def _run_batch(self, batch: _Batch, is_active: Callable[[int], bool]) -> Iterator[tuple[int, CompletionChunk]]:
        rows, width, length = batch.rows, batch.prompt_width, batch.max_tokens
        tokens, positions = np.zeros((self.batch_size, width), "int32"), np.full((self.batch_size, width), -1, "int32")
        for i, row in enumerate(rows):
            num_prompt = len(row.prompt_tokens)
            tokens[i, :num_prompt], positions[i, :num_prompt] = row.prompt_tokens, np.arange(num_prompt)
        chunk_size = 1 if batch.constrained else self.chunk_size
        calls = -(-length // chunk_size)
        cache = _empty_cache(self.model, self.batch_size, width + calls * chunk_size)
        sampling, seeds = self._row_sampler(rows), self._row_seeds(rows)
        for call in range(calls):
            output, cache = _generate_chunk(
                self.model,
                cache,
                sampling,
                seeds,
                jnp.asarray(tokens),
                jnp.asarray(positions),
                jnp.array(call),
                self._grammar(batch),
                max_tokens=chunk_size,
                stop_tokens=self.tokenizer.stop_tokens,
                num_top_tokens=batch.num_top_tokens,
            )
            sampled, log_probs, counts = (np.asarray(x) for x in (output.tokens, output.log_probs, output.lengths))
            top = None if output.top is None else (np.asarray(output.top.tokens), np.asarray(output.top.log_probs))
            tokens, positions = np.zeros((self.batch_size, 1), "int32"), np.full((self.batch_size, 1), -1, "int32")
            for i, row in enumerate(rows):
                if row.response.finish_reason is not None or not is_active(row.prompt_index):
                    continue
                new = sampled[i, : counts[i]].tolist(), log_probs[i, : counts[i]].tolist()
                alternatives = None if top is None else _top_log_probs(top[0][i], top[1][i], row.num_top_tokens)
                yield row.prompt_index, row.response.append(*new, alternatives)
                if row.constraint is not None:
                    row.constraint.advance(new[0][0])
                if row.response.finish_reason is None:
                    tokens[i], positions[i] = (
                        row.response.tokens[-1],
                        len(row.prompt_tokens) + len(row.response.tokens) - 1,
                    )
            if (positions < 0).all():
                return

    def _grammar(self, batch: _Batch) -> Grammar:
        """The grammar of the next chunk: none, or the mask of the next token of each row."""
        if not batch.constrained:
            return NoGrammar()
        mask = np.ones((self.batch_size, self.model.config.vocab_size), bool)
        for i, row in enumerate(batch.rows):
            if row.constraint is not None and row.response.finish_reason is None:
                mask[i] = row.constraint.allowed_tokens()
        return MaskGrammar(jnp.asarray(mask))

    def _row_sampler(self, rows: list[_BatchRow]) -> PerRowSampler:
        """The sampler with each row's options; padding rows have the defaults."""
        configs = [row.config for row in rows] + [DEFAULT_GENERATION] * (self.batch_size - len(rows))
        options = np.array([(r.temperature, r.top_p, r.min_p) for r in configs], "float32").T
        temperature, top_p, min_p, top_k = jax.device_put((*options, np.array([r.top_k for r in configs], "int32")))
        return PerRowSampler(temperature, top_k, top_p, min_p)

    def _row_seeds(self, rows: list[_BatchRow]) -> Int[Array, "row 3"]:
        """The low and high half of each row's seed, and its choice index."""
        seeds = np.zeros((self.batch_size, 3), "uint32")
        for i, row in enumerate(rows):
            seeds[i] = row.seed & 0xFFFFFFFF, (row.seed >> 32) & 0xFFFFFFFF, row.choice_index
        return jnp.asarray(seeds.view("int32"))


def load_engine(
    directory: Path | str, *, dtype: str = "float32", batch_size: int = 8, chunk_size: int = 8
) -> LocalEngine:
    """The engine of a directory with ``config.json``, safetensors and ``tokenizer.json``.

    Without a chat template it uses :func:`~thespis.language.chat.default_template`. Raises ``UserError`` for what is
    missing.
    """
    directory = checkpoint_directory(directory)
    config = read_json(directory / "config.json")
    tokenizer = load_tokenizer(directory)
    template = load_template(directory, default_template(tokenizer))
    max_length = config.get("max_position_embeddings") or DEFAULT_MAX_LENGTH
    return LocalEngine(
        load_pretrained(directory, dtype),
        tokenizer,
        template,
        max_length=max_length,
        batch_size=batch_size,
        chunk_size=chunk_size,
    )


def _top_log_probs(tokens: np.ndarray, log_probs: np.ndarray, count: int) -> list[TokenLogProbs]:
    """The ``count`` most likely tokens at each position ``[time, rank]``, without those that are never sampled."""
    positions = zip(tokens[:, :count].tolist(), log_probs[:, :count].tolist(), strict=True)
    return [tuple((t, p) for t, p in zip(*position, strict=True) if p > LOWEST_LOG_PROB) for position in positions]


def _bucket(count: int) -> int:
    return max(_MIN_PROMPT_WIDTH, 1 << (count - 1).bit_length())


@functools.partial(jax.jit, static_argnums=(1, 2))
def _empty_cache(model: Decoder, batch_size: int, slots: int) -> KVCache:
    """An empty cache; each layer has arrays of its own, as they are donated."""
    return model.init_cache(batch_size, slots)


@functools.partial(jax.jit, static_argnames=("max_tokens", "stop_tokens", "num_top_tokens"), donate_argnames=("cache",))
def _generate_chunk(
    model: Decoder,
    cache: KVCache,
    sampler: PerRowSampler,
    seeds: Int[Array, "row 3"],
    tokens: Int[Array, "row block"],
    positions: Int[Array, "row block"],
    chunk_index: Int[Array, ""],
    grammar: Grammar,
    **static: Any,
) -> tuple[GenerationOutput, KVCache]:
    def key(seed: Array) -> Array:
        row_key = seed_key(seed[0])
        for number in (seed[1], seed[2], chunk_index):
            row_key = jax.random.fold_in(row_key, number)
        return row_key

    return ResponseGenerator(model, sampler, **static)(cache, tokens, positions, jax.vmap(key)(seeds), grammar)
