"""Batched generation of responses by a decoder, with a key-value cache that is kept between turns.

Texts differ in length, but nothing is recompiled: the new tokens of each text form a block of one width, with padding
at position -1, and the cache has a fixed number of slots. A block is read in one pass (prefill); then every step
samples a token for each row. The last token of a response is not read: it is part of the next block.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.language.grammar import Grammar, NoGrammar
from thespis.language.sampling import TemperatureSampler, TokenSampler
from thespis.nets.decoder import DecoderLayer, GeneratingModel, KVCache
from thespis.runtime import vmap_exact


class CriticLogitsProcessor(eqx.Module):
    r"""Critic-guided decoding: likely tokens are weighted by how much they raise a critic's value of the text.

    .. math:: p(a|s) \propto \pi(a|s) \left(\frac{\sigma(V(s, a))}{\sigma(V(s))}\right)^{\text{guidance\_scale}}

    for the ``top_k`` tokens of the largest :math:`\pi(a|s)`; all others keep theirs (Kim et al. 2022, CriticControl).
    The critic is linear in the decoder's features, so each of those tokens is read by the decoder once, and discarded.
    """

    weight: Float[Array, " width"]
    bias: Float[Array, ""]
    guidance_scale: float | Float[Array, ""]
    top_k: int = eqx.field(static=True)

    def __call__(
        self,
        model: GeneratingModel,
        layers: tuple[DecoderLayer, ...],
        cache: KVCache,
        features: Float[Array, "row width"],
        logits: Float[Array, "row token"],
        positions: Int[Array, " row"],
    ) -> Float[Array, "row token"]:
        """Logits of the weighted distribution; ``positions``: those of the next tokens."""
        tokens = jax.lax.top_k(logits, min(self.top_k, logits.shape[-1]))[1]
        extended = _extend_cache(cache)

        def next_value(token: Array) -> Array:
            next_features, _ = model.forward_with_cache(extended, token[:, None], positions[:, None], layers)
            return jax.nn.log_sigmoid(linear_value(next_features[:, 0], self.weight, self.bias))

        current_value = jax.nn.log_sigmoid(linear_value(features, self.weight, self.bias))
        gain = self.guidance_scale * (jax.vmap(next_value, in_axes=1, out_axes=1)(tokens) - current_value[:, None])
        return logits.at[jnp.arange(len(logits))[:, None], tokens].add(gain.astype(logits.dtype))


LogitsProcessor = CriticLogitsProcessor


def linear_value(
    features: Float[Array, "*axes width"], weight: Float[Array, " width"], bias: Float[Array, ""]
) -> Float[Array, "*axes"]:
    """Linear value of features divided by their norm ``sqrt(width)``, else its gradient would drown the actor's."""
    return features @ weight / max(weight.shape[0], 1) ** 0.5 + bias


def _extend_cache(cache: KVCache) -> KVCache:
    """The cache with one more slot, which is the next to be written: the cache may be full."""

    def pad(x: Array, axis: int, filling: int = 0) -> Array:
        return jnp.pad(x, [(0, int(i == axis)) for i in range(x.ndim)], constant_values=filling)

    keys, values = (tuple(pad(x, axis) for x in arrays) for arrays, axis in ((cache.keys, 3), (cache.values, 2)))
    slots = jnp.full_like(cache.num_used, cache.positions.shape[1])
    return dataclasses.replace(cache, keys=keys, values=values, positions=pad(cache.positions, 1, -1), num_used=slots)


_FREE = NoGrammar()


class TopTokens(eqx.Module):
    """The most likely tokens at each step, with the log-probabilities that the sampler reports."""

    tokens: Int[Array, "row time rank"]
    log_probs: Float[Array, "row time rank"]


class GenerationOutput(eqx.Module):
    """Sampled responses: tokens up to and including the stop token, then -1; log-probabilities as sampled, then 0."""

    tokens: Int[Array, "row time"]
    log_probs: Float[Array, "row time"]
    top: TopTokens | None = None
    """``None`` where the generator does not record them."""

    @property
    def lengths(self) -> Int[Array, " row"]:
        """The number of tokens of each response."""
        return (self.tokens >= 0).sum(-1)


class _GenerationState(eqx.Module):
    """State of the decoding loop: number of steps, outputs, cache, state of the grammar, and rows not yet finished."""

    step: Int[Array, ""]
    output: GenerationOutput
    cache: KVCache
    grammar_state: PyTree
    active: Bool[Array, " row"]


def forward_block(
    model: GeneratingModel,
    cache: KVCache,
    tokens: Int[Array, "row time"],
    positions: Int[Array, "row time"],
    layers: tuple[DecoderLayer, ...],
) -> tuple[Float[Array, "row width"], KVCache]:
    """Features of the last token of each row's block, and the cache that has read the block.

    The last token is the one at the largest position; features of a row of padding alone are meaningless.
    """
    last = jnp.argmax(positions, axis=1)[:, None] if tokens.shape[1] > 1 else None
    features, cache = model.forward_with_cache(cache, tokens, positions, layers, last)
    return features[:, 0], cache


class ResponseGenerator(eqx.Module):
    """Sampler of responses for each row of a batch: at most ``max_tokens`` tokens, up to one of ``stop_tokens``.

    ``early_stop``: end as soon as all rows have stopped; without it generation always takes ``max_tokens`` steps, which
    is faster under ``vmap`` (over seeds). ``logits_processor``: changes the logits before a token is sampled.
    ``num_top_tokens``: how many of the most likely tokens are recorded at each step.
    """

    model: GeneratingModel
    sampler: TokenSampler = TemperatureSampler()
    max_tokens: int = eqx.field(static=True, default=16)
    stop_tokens: tuple[int, ...] = eqx.field(static=True, default=())
    early_stop: bool = eqx.field(static=True, default=True)
    logits_processor: LogitsProcessor | None = None
    num_top_tokens: int = eqx.field(static=True, default=0)

    @vmap_exact.skip_unit_vmap
    def __call__(
        self,
        cache: KVCache,
        tokens: Int[Array, "row block"],
        positions: Int[Array, "row block"],
        key: Key[Array, "*rows"],
        grammar: Grammar = _FREE,
    ) -> tuple[GenerationOutput, KVCache]:
        """Generate a response for each row after its block; returns it with the cache, which lacks its last token.

        ``key``: one for all rows, or one for each: then the sample of a row does not depend on the others. ``grammar``
        restricts the tokens. A row whose block is padding alone generates nothing. The cache needs room for
        ``block + max_tokens - 1`` more tokens.
        """
        self = dataclasses.replace(self, model=self.model.untie_head())
        layers = self.model.unstack_layers()
        features, cache = forward_block(self.model, cache, tokens, positions, layers)
        rows, start = tokens.shape[0], positions.max(axis=1) + 1
        empty_output = GenerationOutput(
            jnp.full((rows, self.max_tokens), -1), jnp.zeros((rows, self.max_tokens)), self._empty_top_tokens(rows)
        )
        saying = _GenerationState(jnp.array(0), empty_output, cache, grammar.init_state(rows), start > 0)
        saying = self._sample_token(saying, layers, features, start, key, grammar)

        def next_step(saying: _GenerationState) -> _GenerationState:
            last = jax.lax.dynamic_index_in_dim(saying.output.tokens, saying.step - 1, axis=1)
            position = jnp.where(saying.active, start + saying.step - 1, -1)[:, None]
            features, cache = forward_block(self.model, saying.cache, jnp.maximum(last, 0), position, layers)
            return self._sample_token(dataclasses.replace(saying, cache=cache), layers, features, start, key, grammar)

        if self.early_stop:
            saying = jax.lax.while_loop(
                lambda loop_state: (loop_state.step < self.max_tokens) & loop_state.active.any(), next_step, saying
            )
        else:
            saying = jax.lax.fori_loop(1, self.max_tokens, lambda _, loop_state: next_step(loop_state), saying)
        return saying.output, saying.cache

    def _sample_token(
        self,
        saying: _GenerationState,
        layers: tuple[DecoderLayer, ...],
        features: Float[Array, "row width"],
        start: Int[Array, " row"],
        key: Key[Array, "*rows"],
        grammar: Grammar,
    ) -> _GenerationState:
        """Sample one more token for each row that has not finished."""
        positions = jnp.where(saying.active, start + saying.step, -1)
        logits = self.model.logits(features)
        if self.logits_processor is not None:
            logits = self.logits_processor(self.model, layers, saying.cache, features, logits, positions)
        allowed = grammar.allowed_tokens(saying.grammar_state, self.model.config.vocab_size)
        token, log_prob = self.sampler.sample(logits, _step_key(key, saying.step), allowed)
        state, complete = grammar.advance(saying.grammar_state, token)
        active, column = saying.active, (0, saying.step)
        tokens, log_probs = (
            jax.lax.dynamic_update_slice(old, jnp.where(active, new, padding)[:, None], column)
            for old, new, padding in ((saying.output.tokens, token, -1), (saying.output.log_probs, log_prob, 0.0))
        )
        stops = (token[:, None] == jnp.array(self.stop_tokens, "int32")).any(axis=1) | complete
        top = (
            None
            if saying.output.top is None
            else self._record_top_tokens(saying.output.top, saying.step, logits, allowed)
        )
        return _GenerationState(
            saying.step + 1, GenerationOutput(tokens, log_probs, top), saying.cache, state, active & ~stops
        )

    def _empty_top_tokens(self, rows: int) -> TopTokens | None:
        if not self.num_top_tokens:
            return None
        shape = rows, self.max_tokens, min(self.num_top_tokens, self.model.config.vocab_size)
        return TopTokens(jnp.zeros(shape, "int32"), jnp.zeros(shape))

    def _record_top_tokens(
        self,
        top: TopTokens,
        step: Int[Array, ""],
        logits: Float[Array, "row token"],
        allowed: Bool[Array, "row token"] | None,
    ) -> TopTokens:
        log_probs, tokens = jax.lax.top_k(self.sampler.reported_log_probs(logits, allowed), top.tokens.shape[-1])
        updated = (
            jax.lax.dynamic_update_slice(old, new[:, None].astype(old.dtype), (0, step, 0))
            for old, new in ((top.tokens, tokens), (top.log_probs, log_probs))
        )
        return TopTokens(*updated)


def _step_key(key: Key[Array, "*rows"], tick: Int[Array, ""]) -> Key[Array, "*rows"]:
    return jax.vmap(jax.random.fold_in, (0, None))(key, tick) if key.ndim else jax.random.fold_in(key, tick)


def block_positions(lengths: Int[Array, " row"], starts: Int[Array, " row"], width: int) -> Int[Array, "row time"]:
    """Positions of blocks of ``width`` tokens, the first ``lengths`` of which are real and start at ``starts``."""
    offsets = jnp.arange(width)
    return jnp.where(offsets < lengths[:, None], starts[:, None] + offsets, -1)
