"""Samplers of tokens from logits (temperature, top-k, top-p, min-p), with log-probabilities of what is sampled."""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

_MASKED_LOGIT = -1e30  # finite, so that an average over the vocabulary cannot be NaN
LOWEST_LOG_PROB = 0.1 * _MASKED_LOGIT
"""Tokens with a smaller log-probability are never sampled."""


@runtime_checkable
class TokenSampler(Protocol):
    """A sampler of one token per row."""

    def sample(
        self,
        logits: Float[Array, "row token"],
        key: Key[Array, "*rows"],
        allowed: Bool[Array, "row token"] | None = None,
    ) -> tuple[Int[Array, " row"], Float[Array, " row"]]:
        """The tokens and their log-probabilities; ``key``: one for all rows, or one for each row."""
        ...

    def reported_log_probs(
        self, logits: Float[Array, "row token"], allowed: Bool[Array, "row token"] | None = None
    ) -> Float[Array, "row token"]:
        """The log-probabilities of all tokens, from which :meth:`sample` reports that of its token."""
        ...


class TemperatureSampler(eqx.Module):
    """Temperature sampling, restricted to likely tokens in the usual order: top-k, top-p, min-p."""

    temperature: float | Float[Array, "*rows"] = 1.0
    """Divides the logits. 0: greedy, with equal probabilities in a tie. An array broadcasts against the logits."""
    top_k: int = eqx.field(static=True, default=0)
    """How many of the most likely tokens are kept; 0: all."""
    top_p: float = eqx.field(static=True, default=1.0)
    """The smallest set of most likely tokens with this total probability is kept (Holtzman et al., 2020); 1: all."""
    min_p: float = eqx.field(static=True, default=0.0)
    """Tokens with at least this share of the most likely token's probability are kept (Nguyen et al., 2024); 0: all."""

    def __check_init__(self):
        """Refuse values out of range."""
        if self.top_k < 0 or not 0 < self.top_p <= 1 or not 0 <= self.min_p <= 1:
            raise ValueError(f"top_k={self.top_k}, top_p={self.top_p}, min_p={self.min_p}: out of range")

    def log_probs(
        self, logits: Float[Array, "*axes token"], allowed: Bool[Array, "*axes token"] | None = None
    ) -> Float[Array, "*axes token"]:
        """Log-probabilities of the sampled distribution; -1e30 for tokens that are never sampled.

        ``allowed``: a mask of tokens, at least one per row.
        """
        if allowed is not None:
            logits = jnp.where(allowed, logits, _MASKED_LOGIT)
        greedy = jnp.asarray(self.temperature) <= 0
        is_best = logits >= logits.max(-1, keepdims=True)
        scaled = jnp.where(
            greedy, jnp.where(is_best, 0.0, _MASKED_LOGIT), logits / jnp.where(greedy, 1.0, self.temperature)
        )
        if self.top_k:
            lowest = jax.lax.top_k(scaled, min(self.top_k, scaled.shape[-1]))[0][..., -1:]
            scaled = jnp.where(scaled < lowest, _MASKED_LOGIT, scaled)
        if self.top_p < 1:
            scaled = jnp.where(_nucleus_mask(scaled, self.top_p), scaled, _MASKED_LOGIT)
        if self.min_p > 0:
            lowest = scaled.max(-1, keepdims=True) + jnp.log(self.min_p)
            scaled = jnp.where(scaled < lowest, _MASKED_LOGIT, scaled)
        return jnp.maximum(jax.nn.log_softmax(scaled), _MASKED_LOGIT)

    def sample(
        self,
        logits: Float[Array, "row token"],
        key: Key[Array, "*rows"],
        allowed: Bool[Array, "row token"] | None = None,
    ) -> tuple[Int[Array, " row"], Float[Array, " row"]]:
        """A token for each row, and its log-probability."""
        return _sample_tokens(self.log_probs(logits, allowed), key)

    def reported_log_probs(
        self, logits: Float[Array, "row token"], allowed: Bool[Array, "row token"] | None = None
    ) -> Float[Array, "row token"]:
        """Those of the sampled distribution, also at temperature 0, where they are 0 and -1e30."""
        return self.log_probs(logits, allowed)


class PerRowSampler(eqx.Module):
    """:class:`TemperatureSampler` with options per row, as arrays only: one compiled program for all options.

    At temperature 0 it reports the log-probabilities of the model: log-softmax of the logits, without restrictions.
    """

    temperature: Float[Array, " row"]
    top_k: Int[Array, " row"]
    top_p: Float[Array, " row"]
    min_p: Float[Array, " row"]

    def log_probs(
        self, logits: Float[Array, "row token"], allowed: Bool[Array, "row token"] | None = None
    ) -> Float[Array, "row token"]:
        """See :meth:`TemperatureSampler.log_probs`; the vocabulary is sorted only if some row restricts it."""
        temperature, top_p, min_p = (x[:, None] for x in (self.temperature, self.top_p, self.min_p))
        plain = TemperatureSampler(jnp.maximum(temperature, 0.0)).log_probs(logits, allowed)

        def restrict(scaled: Array) -> Array:
            last = jnp.where(self.top_k > 0, self.top_k, scaled.shape[-1]).clip(1, scaled.shape[-1]) - 1
            lowest = jnp.take_along_axis(-jnp.sort(-scaled, axis=-1), last[:, None], axis=-1)
            scaled = jnp.where(scaled < lowest, _MASKED_LOGIT, scaled)
            scaled = jnp.where(_nucleus_mask(scaled, top_p) | (top_p >= 1), scaled, _MASKED_LOGIT)
            lowest = scaled.max(-1, keepdims=True) + jnp.log(jnp.maximum(min_p, 1e-30))
            return jax.nn.log_softmax(jnp.where((scaled < lowest) & (min_p > 0), _MASKED_LOGIT, scaled))

        is_restricted = (self.top_k > 0) | (self.top_p < 1) | (self.min_p > 0)
        log_probs = jax.lax.cond(is_restricted.any(), restrict, lambda scaled: scaled, plain)
        # A row without restrictions keeps exactly the same bits, whether another row has some or not.
        return jnp.where(is_restricted[:, None], jnp.maximum(log_probs, _MASKED_LOGIT), plain)

    def sample(
        self,
        logits: Float[Array, "row token"],
        key: Key[Array, "*rows"],
        allowed: Bool[Array, "row token"] | None = None,
    ) -> tuple[Int[Array, " row"], Float[Array, " row"]]:
        """A token for each row, and its log-probability."""
        token, log_prob = _sample_tokens(self.log_probs(logits, allowed), key)
        reported = jnp.take_along_axis(jax.nn.log_softmax(logits), token[:, None], axis=-1)[:, 0]
        return token, jnp.where(self.temperature > 0, log_prob, reported)

    def reported_log_probs(
        self, logits: Float[Array, "row token"], allowed: Bool[Array, "row token"] | None = None
    ) -> Float[Array, "row token"]:
        """Those of the sampled distribution; at temperature 0 those of the model."""
        is_sampled = self.temperature[:, None] > 0
        return jnp.where(is_sampled, self.log_probs(logits, allowed), jax.nn.log_softmax(logits))


def _sample_tokens(
    logs: Float[Array, "row token"], key: Key[Array, "*rows"]
) -> tuple[Int[Array, " row"], Float[Array, " row"]]:
    if key.ndim:
        uniform = jax.vmap(lambda row_key: jax.random.uniform(row_key, (1,)))(key)
    else:
        uniform = jax.random.uniform(key, (logs.shape[0], 1))
    token = _inverse_cdf(jnp.exp(logs), uniform)
    return token, jnp.take_along_axis(logs, token[:, None], axis=-1)[:, 0]


def _inverse_cdf(probabilities: Float[Array, "row token"], uniform: Float[Array, "row 1"]) -> Int[Array, " row"]:
    """Inverse-CDF sampling: the token whose interval of [0, 1) contains the uniform number.

    Gumbel noise would need a random number for every token. The block of tokens is found first, then the token in it:
    a running sum over all tokens would take several times as long.
    """
    rows, size = probabilities.shape
    blocks, width = _block_sizes(size)
    tiled = jnp.pad(probabilities, ((0, 0), (0, blocks * width - size))).reshape(rows, blocks, width)
    block, rest = _first_cdf_above(tiled.sum(-1), uniform * tiled.sum((-1, -2))[:, None])
    in_block = jnp.take_along_axis(tiled, block[:, None, None], axis=1)[:, 0]
    return block * width + _first_cdf_above(in_block, rest)[0]


def _block_sizes(size: int) -> tuple[int, int]:
    """Number and width of blocks, about equal; if possible without padding, which would cost a copy."""
    root = math.ceil(size**0.5)
    width = min(range(root, 2 * root), key=lambda width: (-size % width > 0, width))
    return -(-size // width), width


def _first_cdf_above(
    shares: Float[Array, "row share"], threshold: Float[Array, "row 1"]
) -> tuple[Int[Array, " row"], Float[Array, "row 1"]]:
    """The first share whose end lies above ``threshold``, never an empty one, and how far in it ``threshold`` lies."""
    ends = jnp.cumsum(shares, axis=-1)
    index = jnp.minimum((ends <= threshold).sum(axis=-1), shares.shape[-1] - 1)
    empty = jnp.take_along_axis(shares, index[:, None], axis=-1)[:, 0] <= 0  # by rounding, at the very end
    index = jnp.where(empty, jnp.argmax(shares, axis=-1), index)
    begin = jnp.take_along_axis(ends - shares, index[:, None], axis=-1)
    return index, threshold - begin


def _nucleus_mask(
    logits: Float[Array, "*axes token"], top_p: float | Float[Array, "*shares"]
) -> Bool[Array, "*axes token"]:
    """Top-p mask: whether the more likely tokens together have a probability below ``top_p``."""
    probabilities = jax.nn.softmax(logits)
    order = jnp.argsort(-probabilities, axis=-1)
    ranked = jnp.take_along_axis(probabilities, order, axis=-1)
    mask = jnp.cumsum(ranked, axis=-1) - ranked < top_p
    return jnp.take_along_axis(mask, jnp.argsort(order, axis=-1), axis=-1)
