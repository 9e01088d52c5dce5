"""Score a list of candidate responses to one text with a decoder."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from thespis.nets.decoder import Decoder


def pad_candidates(candidates: tuple[tuple[int, ...], ...], length: int) -> Int[np.ndarray, "choice width"]:
    """Pad the tokens of candidates with -1 to one array."""
    return np.array([(*ids, *[-1] * (length - len(ids))) for ids in candidates], "int32")


class CandidateScorer(eqx.Module):
    """Scorer of candidate responses: their log-probability after a text, which is read once for all candidates.

    ``candidates``: the tokens of each, none of them empty. ``context_length``: how many of a text's last tokens are
    read; 0: all.
    """

    model: Decoder
    candidates: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    context_length: int = eqx.field(static=True, default=0)

    @property
    def candidate_tokens(self) -> Int[np.ndarray, "choice response"]:
        """The candidates' tokens, padded with -1."""
        return pad_candidates(self.candidates, max(map(len, self.candidates)))

    def prompt_features(self, text: Int[Array, " length"]) -> Float[Array, " width"]:
        """Features of the last token of a text, which is padded with -1."""
        text, count = self._truncate(text)
        positions = jnp.where(text >= 0, jnp.arange(text.shape[0]), -1)
        return self.model(jnp.maximum(text, 0), positions)[count - 1]

    def __call__(self, text: Int[Array, " length"]) -> Float[Array, "choice response width"]:
        """Features that predict every token of every candidate after the text."""
        text, count = self._truncate(text)
        candidates, indices = self.candidate_tokens, jnp.arange(text.shape[0])
        num_candidates, width = candidates.shape
        tokens = jnp.concatenate([text, candidates.reshape(-1)])
        candidate_positions = jnp.where(candidates >= 0, count + np.arange(width), -1)
        positions = jnp.concatenate([jnp.where(text >= 0, indices, -1), candidate_positions.reshape(-1)])
        branches = np.repeat(np.arange(num_candidates + 1), [text.shape[0], *[width] * num_candidates])
        features = self.model(jnp.maximum(tokens, 0), positions, jnp.asarray(branches))
        first = jnp.broadcast_to(features[count - 1], (num_candidates, 1, features.shape[-1]))
        return jnp.concatenate([first, features[text.shape[0] :].reshape(num_candidates, width, -1)[:, :-1]], axis=1)

    def log_probs(
        self, text: Int[Array, " length"], log_prob_fn: Callable[[Array], Array] = jax.nn.log_softmax
    ) -> Float[Array, " choice"]:
        """Log-probability of every candidate as a response: the sum over its tokens.

        ``log_prob_fn`` maps logits to log-probabilities.
        """
        log_probs = log_prob_fn(self.model.logits(self(text)))
        per_token = jnp.take_along_axis(log_probs, jnp.maximum(self.candidate_tokens, 0)[..., None], axis=-1)[..., 0]
        return jnp.where(self.candidate_tokens >= 0, per_token, 0.0).sum(axis=-1)

    def _truncate(self, text: Int[Array, " length"]) -> tuple[Int[Array, " read"], Int[Array, ""]]:
        """The part of a text that is read, and its number of tokens."""
        count = (text >= 0).sum()
        if not 0 < self.context_length < text.shape[0]:
            return text, count
        indices = jnp.maximum(count - self.context_length, 0) + jnp.arange(self.context_length)
        return text[indices], jnp.minimum(count, self.context_length)
