"""A decoder that is asked what it thinks of every utterance of a list, in answer to one text."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from thespis.nets.decoder import Decoder


def padded(utterances: tuple[tuple[int, ...], ...], width: int) -> Int[np.ndarray, "choice width"]:
    """Ids of utterances, with -1 behind them."""
    return np.array([(*ids, *[-1] * (width - len(ids))) for ids in utterances], "int32")


class Listing(eqx.Module):
    """``utterances``: ids of each, none of them empty. The text is read once, whatever their number.

    ``recent``: how many ids of a text are read, the last ones; 0: all.
    """

    model: Decoder
    utterances: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    recent: int = eqx.field(static=True, default=0)

    @property
    def ids(self) -> Int[np.ndarray, "choice utterance"]:
        """The utterances, padded with -1."""
        return padded(self.utterances, max(map(len, self.utterances)))

    def before(self, text: Int[Array, " length"]) -> Float[Array, " width"]:
        """Features of the last id of a text, which is padded with -1."""
        text, count = self._read(text)
        positions = jnp.where(text >= 0, jnp.arange(text.shape[0]), -1)
        return self.model(jnp.maximum(text, 0), positions)[count - 1]

    def __call__(self, text: Int[Array, " length"]) -> Float[Array, "choice utterance width"]:
        """Features in front of every id of every utterance behind the text."""
        text, count = self._read(text)
        ids, place = self.ids, jnp.arange(text.shape[0])
        choices, longest = ids.shape
        tokens = jnp.concatenate([text, ids.reshape(-1)])
        behind = jnp.where(ids >= 0, count + np.arange(longest), -1)
        positions = jnp.concatenate([jnp.where(text >= 0, place, -1), behind.reshape(-1)])
        branches = np.repeat(np.arange(choices + 1), [text.shape[0], *[longest] * choices])
        features = self.model(jnp.maximum(tokens, 0), positions, jnp.asarray(branches))
        first = jnp.broadcast_to(features[count - 1], (choices, 1, features.shape[-1]))
        return jnp.concatenate([first, features[text.shape[0] :].reshape(choices, longest, -1)[:, :-1]], axis=1)

    def log_probs(
        self, text: Int[Array, " length"], logs_of: Callable[[Array], Array] = jax.nn.log_softmax
    ) -> Float[Array, " choice"]:
        """Of every utterance as an answer: sums over its ids. ``logs_of``: from logits to log-probabilities."""
        logs = logs_of(self.model.logits(self(text)))
        each = jnp.take_along_axis(logs, jnp.maximum(self.ids, 0)[..., None], axis=-1)[..., 0]
        return jnp.where(self.ids >= 0, each, 0.0).sum(axis=-1)

    def _read(self, text: Int[Array, " length"]) -> tuple[Int[Array, " read"], Int[Array, ""]]:
        """The part of a text that is read, and how many ids that is."""
        count = (text >= 0).sum()
        if not 0 < self.recent < text.shape[0]:
            return text, count
        at = jnp.maximum(count - self.recent, 0) + jnp.arange(self.recent)
        return text[at], jnp.minimum(count, self.recent)
