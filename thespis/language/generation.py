"""Utterances of a decoder, a whole batch at once, with a cache that is kept between turns.

Texts differ in length, yet nothing is compiled again: what is new of each text is a block of one width, padding at
position -1, and the cache has the slots that it was made with. A block is read in one pass (prefill); then every tick
draws a token for each row. The last token of an utterance is not read: it is part of the next block.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core import apart
from thespis.language.grammar import Free, Grammar
from thespis.language.sampling import Sampler, Sampling
from thespis.language.steering import Steering, Unsteered
from thespis.nets.decoder import Cache, Decoder, Layer

_FREE = Free()
_UNSTEERED = Unsteered()


class Drawn(eqx.Module):
    """Utterances: the tokens up to and with the one that stops, then -1; their log-probabilities as sampled, then 0."""

    tokens: Int[Array, "row time"]
    log_probs: Float[Array, "row time"]

    @property
    def counts(self) -> Int[Array, " row"]:
        """Tokens of each utterance."""
        return (self.tokens >= 0).sum(-1)


class _Saying(eqx.Module):
    """Utterances in the making: how many ticks are over, what was said, the grammar's state, who goes on."""

    tick: Int[Array, ""]
    drawn: Drawn
    cache: Cache
    state: PyTree
    going: Bool[Array, " row"]


def read(
    model: Decoder,
    cache: Cache,
    tokens: Int[Array, "row time"],
    positions: Int[Array, "row time"],
    layers: tuple[Layer, ...],
) -> tuple[Float[Array, "row width"], Cache]:
    """Features of the last token of each row's block, and the caches that have read it.

    The last token is the one at the largest position; a row of padding alone gets features that mean nothing.
    """
    last = jnp.argmax(positions, axis=1)[:, None] if tokens.shape[1] > 1 else None
    features, cache = model.read(cache, tokens, positions, layers, last)
    return features[:, 0], cache


class Speaker(eqx.Module):
    """What says something to each row of a batch: at most ``length`` tokens, up to one of ``stop``.

    ``until``: end as soon as all rows have stopped; without it every utterance takes ``length`` ticks, which under
    ``vmap`` (of seeds) is quicker. ``steering``: what changes the model's word before a token is drawn.
    """

    model: Decoder
    sampling: Sampler = Sampling()
    length: int = eqx.field(static=True, default=16)
    stop: tuple[int, ...] = eqx.field(static=True, default=())
    until: bool = eqx.field(static=True, default=True)
    steering: Steering = _UNSTEERED

    @apart.lone
    def __call__(
        self,
        cache: Cache,
        tokens: Int[Array, "row block"],
        positions: Int[Array, "row block"],
        key: Key[Array, "*rows"],
        grammar: Grammar = _FREE,
    ) -> tuple[Drawn, Cache]:
        """What each row says after its block, and the caches that have read all of it but its last token.

        ``key``: one for all rows, or one for each: then a row draws the same whatever the others are. ``grammar`` says
        what may be said. A row whose block is padding alone says nothing. The caches need room for
        ``block + length - 1`` more.
        """
        self = dataclasses.replace(self, model=self.model.untied())
        layers = self.model.apart()
        features, cache = read(self.model, cache, tokens, positions, layers)
        rows, first = tokens.shape[0], positions.max(axis=1) + 1
        none = Drawn(jnp.full((rows, self.length), -1), jnp.zeros((rows, self.length)))
        saying = _Saying(jnp.array(0), none, cache, grammar.start(rows), first > 0)
        saying = self._said(saying, layers, features, first, key, grammar)

        def tick(saying: _Saying) -> _Saying:
            last = jax.lax.dynamic_index_in_dim(saying.drawn.tokens, saying.tick - 1, axis=1)
            at = jnp.where(saying.going, first + saying.tick - 1, -1)[:, None]
            features, cache = read(self.model, saying.cache, jnp.maximum(last, 0), at, layers)
            return self._said(dataclasses.replace(saying, cache=cache), layers, features, first, key, grammar)

        if self.until:
            saying = jax.lax.while_loop(lambda s: (s.tick < self.length) & s.going.any(), tick, saying)
        else:
            saying = jax.lax.fori_loop(1, self.length, lambda _, s: tick(s), saying)
        return saying.drawn, saying.cache

    def _said(
        self,
        saying: _Saying,
        layers: tuple[Layer, ...],
        features: Float[Array, "row width"],
        first: Int[Array, " row"],
        key: Key[Array, "*rows"],
        grammar: Grammar,
    ) -> _Saying:
        """One more token of each row that is not done."""
        coming = jnp.where(saying.going, first + saying.tick, -1)
        logits = self.steering(self.model, layers, saying.cache, features, self.model.logits(features), coming)
        allowed = grammar.allowed(saying.state, self.model.shape.vocabulary)
        token, log = self.sampling.draw(logits, _at(key, saying.tick), allowed)
        state, complete = grammar.after(saying.state, token)
        going, at = saying.going, (0, saying.tick)
        tokens, logs = (
            jax.lax.dynamic_update_slice(old, jnp.where(going, new, nothing)[:, None], at)
            for old, new, nothing in ((saying.drawn.tokens, token, -1), (saying.drawn.log_probs, log, 0.0))
        )
        stops = (token[:, None] == jnp.array(self.stop, "int32")).any(axis=1) | complete
        return _Saying(saying.tick + 1, Drawn(tokens, logs), saying.cache, state, going & ~stops)


def _at(key: Key[Array, "*rows"], tick: Int[Array, ""]) -> Key[Array, "*rows"]:
    return jax.vmap(jax.random.fold_in, (0, None))(key, tick) if key.ndim else jax.random.fold_in(key, tick)


def place(counts: Int[Array, " row"], begin: Int[Array, " row"], width: int) -> Int[Array, "row time"]:
    """Positions of blocks of ``width`` whose first ``counts`` tokens are real and begin at position ``begin``."""
    offsets = jnp.arange(width)
    return jnp.where(offsets < counts[:, None], begin[:, None] + offsets, -1)
