"""From logits to the distribution that is sampled: the same for who draws from it and for who learns from the draws."""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

_NEVER = -1e30  # finite, so that an average over the vocabulary cannot be NaN


@runtime_checkable
class Sampler(Protocol):
    """What draws a token for each row."""

    def draw(
        self, logits: Float[Array, "row token"], key: Key[Array, "*rows"], legal: Bool[Array, "row token"] | None = None
    ) -> tuple[Int[Array, " row"], Float[Array, " row"]]:
        """The tokens, and their log-probabilities; ``key``: one, or one for each row."""
        ...


class Sampling(eqx.Module):
    """Temperature, then the restrictions to likely tokens, in the order that is usual: top k, top p, min p."""

    temperature: float | Float[Array, "*rows"] = 1.0
    """Divides the logits; 0: only the likeliest tokens, equal ones alike. An array broadcasts against the logits."""
    top_k: int = eqx.field(static=True, default=0)
    """How many of the likeliest tokens are kept; 0: all."""
    top_p: float = eqx.field(static=True, default=1.0)
    """The likeliest tokens are kept that are needed for so much probability (Holtzman et al., 2020); 1: all."""
    min_p: float = eqx.field(static=True, default=0.0)
    """Tokens are kept that have at least this share of the likeliest token's probability (Nguyen et al., 2024)."""

    def __check_init__(self):
        """Refuse shares outside their ranges."""
        if self.top_k < 0 or not 0 < self.top_p <= 1 or not 0 <= self.min_p <= 1:
            raise ValueError(f"top_k={self.top_k}, top_p={self.top_p}, min_p={self.min_p}: out of range")

    def log_probs(
        self, logits: Float[Array, "*axes token"], legal: Bool[Array, "*axes token"] | None = None
    ) -> Float[Array, "*axes token"]:
        """Log-probabilities of what is sampled; where a token is never sampled, -1e30. ``legal``: never none."""
        if legal is not None:
            logits = jnp.where(legal, logits, _NEVER)
        cold = jnp.asarray(self.temperature) <= 0
        best = logits >= logits.max(-1, keepdims=True)
        scaled = jnp.where(cold, jnp.where(best, 0.0, _NEVER), logits / jnp.where(cold, 1.0, self.temperature))
        if self.top_k:
            least = jax.lax.top_k(scaled, min(self.top_k, scaled.shape[-1]))[0][..., -1:]
            scaled = jnp.where(scaled < least, _NEVER, scaled)
        if self.top_p < 1:
            scaled = jnp.where(_needed(scaled, self.top_p), scaled, _NEVER)
        if self.min_p > 0:
            least = scaled.max(-1, keepdims=True) + jnp.log(self.min_p)
            scaled = jnp.where(scaled < least, _NEVER, scaled)
        return jnp.maximum(jax.nn.log_softmax(scaled), _NEVER)

    def draw(
        self, logits: Float[Array, "row token"], key: Key[Array, "*rows"], legal: Bool[Array, "row token"] | None = None
    ) -> tuple[Int[Array, " row"], Float[Array, " row"]]:
        """A token for each row, and its log-probability."""
        return _drawn(self.log_probs(logits, legal), key)


class Apart(eqx.Module):
    """A :class:`Sampling` of its own for each row, in numbers alone: one program for all the ways to ask."""

    temperature: Float[Array, " row"]
    top_k: Int[Array, " row"]
    top_p: Float[Array, " row"]
    min_p: Float[Array, " row"]

    def log_probs(
        self, logits: Float[Array, "row token"], legal: Bool[Array, "row token"] | None = None
    ) -> Float[Array, "row token"]:
        """As :meth:`Sampling.log_probs`; the vocabulary is sorted only where some row restricts it."""
        temperature, top_p, min_p = (x[:, None] for x in (self.temperature, self.top_p, self.min_p))
        heated = Sampling(jnp.maximum(temperature, 0.0)).log_probs(logits, legal)

        def restricted(scaled: Array) -> Array:
            last = jnp.where(self.top_k > 0, self.top_k, scaled.shape[-1]).clip(1, scaled.shape[-1]) - 1
            least = jnp.take_along_axis(-jnp.sort(-scaled, axis=-1), last[:, None], axis=-1)
            scaled = jnp.where(scaled < least, _NEVER, scaled)
            scaled = jnp.where(_needed(scaled, top_p) | (top_p >= 1), scaled, _NEVER)
            least = scaled.max(-1, keepdims=True) + jnp.log(jnp.maximum(min_p, 1e-30))
            return jax.nn.log_softmax(jnp.where((scaled < least) & (min_p > 0), _NEVER, scaled))

        asks = (self.top_k > 0) | (self.top_p < 1) | (self.min_p > 0)
        found = jax.lax.cond(asks.any(), restricted, lambda scaled: scaled, heated)
        # A row that asks for nothing keeps its very bits, whether another one asks or not.
        return jnp.where(asks[:, None], jnp.maximum(found, _NEVER), heated)

    def draw(
        self, logits: Float[Array, "row token"], key: Key[Array, "*rows"], legal: Bool[Array, "row token"] | None = None
    ) -> tuple[Int[Array, " row"], Float[Array, " row"]]:
        """A token for each row, and its log-probability."""
        return _drawn(self.log_probs(logits, legal), key)


def _drawn(
    logs: Float[Array, "row token"], key: Key[Array, "*rows"]
) -> tuple[Int[Array, " row"], Float[Array, " row"]]:
    if key.ndim:
        uniform = jax.vmap(lambda own: jax.random.uniform(own, (1,)))(key)
    else:
        uniform = jax.random.uniform(key, (logs.shape[0], 1))
    token = _pick(jnp.exp(logs), uniform)
    return token, jnp.take_along_axis(logs, token[:, None], axis=-1)[:, 0]


def _pick(probabilities: Float[Array, "row token"], uniform: Float[Array, "row 1"]) -> Int[Array, " row"]:
    """The token in whose share of [0, 1) each number falls: Gumbel noise would need a number for every token.

    First the block of tokens, then the token in it: running sums over all tokens would take several times as long.
    """
    rows, size = probabilities.shape
    blocks, width = _tiles(size)
    tiled = jnp.pad(probabilities, ((0, 0), (0, blocks * width - size))).reshape(rows, blocks, width)
    block, before = _first_above(tiled.sum(-1), uniform * tiled.sum((-1, -2))[:, None])
    inside = jnp.take_along_axis(tiled, block[:, None, None], axis=1)[:, 0]
    return block * width + _first_above(inside, before)[0]


def _tiles(size: int) -> tuple[int, int]:
    """How many blocks of how many tokens: about as many as in each, and none left over if that can be, for a copy."""
    root = math.ceil(size**0.5)
    width = min(range(root, 2 * root), key=lambda width: (-size % width > 0, width))
    return -(-size // width), width


def _first_above(
    shares: Float[Array, "row share"], at: Float[Array, "row 1"]
) -> tuple[Int[Array, " row"], Float[Array, "row 1"]]:
    """The first share whose end lies above ``at``, never an empty one, and how far in it ``at`` lies."""
    ends = jnp.cumsum(shares, axis=-1)
    found = jnp.minimum((ends <= at).sum(axis=-1), shares.shape[-1] - 1)
    empty = jnp.take_along_axis(shares, found[:, None], axis=-1)[:, 0] <= 0  # by rounding, at the very end
    found = jnp.where(empty, jnp.argmax(shares, axis=-1), found)
    begin = jnp.take_along_axis(ends - shares, found[:, None], axis=-1)
    return found, at - begin


def _needed(logits: Float[Array, "*axes token"], share: float | Float[Array, "*shares"]) -> Bool[Array, "*axes token"]:
    """Whether the likelier tokens together have less than ``share``."""
    probabilities = jax.nn.softmax(logits)
    order = jnp.argsort(-probabilities, axis=-1)
    ranked = jnp.take_along_axis(probabilities, order, axis=-1)
    kept = jnp.cumsum(ranked, axis=-1) - ranked < share
    return jnp.take_along_axis(kept, jnp.argsort(order, axis=-1), axis=-1)
