"""A decoder that is asked what it thinks of every utterance of a list, in answer to one text."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from thespis.nets.decoder import Cache, Decoder


class Listing(eqx.Module):
    """``utterances``: ids of each, none of them empty. The text is read once, whatever their number."""

    model: Decoder
    utterances: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    @property
    def ids(self) -> Int[np.ndarray, "choice utterance"]:
        """The utterances, padded with -1."""
        longest = max(map(len, self.utterances))
        return np.array([(*ids, *[-1] * (longest - len(ids))) for ids in self.utterances], "int32")

    def before(self, text: Int[Array, " length"]) -> Float[Array, " width"]:
        """Features of the last id of a text, which is padded with -1."""
        count = (text >= 0).sum()
        positions = jnp.where(text >= 0, jnp.arange(text.shape[0]), -1)
        return self.model(jnp.maximum(text, 0), positions)[count - 1]

    def __call__(self, text: Int[Array, " length"]) -> Float[Array, "choice place width"]:
        """Features in front of every id of every utterance behind the text, and behind its last id."""
        ids, count, length = self.ids, (text >= 0).sum(), text.shape[0]
        choices, longest = ids.shape
        positions = jnp.where(text >= 0, jnp.arange(length), -1)
        layers, empty = self.model.apart(), self.model.empty(1, length + longest)
        read, cache = self.model.read(empty, jnp.maximum(text, 0)[None], positions[None], layers)
        keys, values, places = jax.tree.map(
            lambda x: jnp.broadcast_to(x, (choices, *x.shape[1:])), (cache.keys, cache.values, cache.positions)
        )
        at = jnp.where(ids >= 0, count + np.arange(longest), -1)
        behind, _ = self.model.read(Cache(keys, values, places, cache.used), jnp.maximum(ids, 0), at, layers)
        first = jnp.broadcast_to(read[0, count - 1], (choices, 1, read.shape[-1]))
        return jnp.concatenate([first, behind], axis=1)

    def log_probs(
        self, text: Int[Array, " length"], logs_of: Callable[[Array], Array] = jax.nn.log_softmax
    ) -> Float[Array, " choice"]:
        """Of every utterance as an answer: sums over its ids. ``logs_of``: from logits to log-probabilities."""
        logs = logs_of(self.model.logits(self(text)[:, :-1]))
        each = jnp.take_along_axis(logs, jnp.maximum(self.ids, 0)[..., None], axis=-1)[..., 0]
        return jnp.where(self.ids >= 0, each, 0.0).sum(axis=-1)

    def behind(self, text: Int[Array, " length"]) -> Float[Array, "choice width"]:
        """Features of the last id of every utterance behind the text."""
        last = (self.ids >= 0).sum(axis=-1)
        return jnp.take_along_axis(self(text), last[:, None, None], axis=1)[:, 0]
