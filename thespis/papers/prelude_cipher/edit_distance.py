"""Levenshtein's distance of token sequences, in JAX: the least number of insertions, deletions and replacements."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int


def levenshtein(a: Int[Array, " m"], b: Int[Array, " n"]) -> Int[Array, ""]:
    """Levenshtein's distance of two sequences, each padded with -1 at its end."""
    places = jnp.arange(len(b) + 1)

    def next_row(row: Int[Array, " place"], token: Int[Array, ""]) -> tuple[Array, Array]:
        """The distances of the beginnings of ``b`` to one token more of ``a``."""
        deleted, replaced = row + 1, jnp.concatenate([row[:1] + 1, row[:-1] + (b != token)])
        without_insertion = jnp.minimum(deleted, replaced)
        row = places + jax.lax.cummin(without_insertion - places)  # any number of insertions after any place
        return row, row

    rows = jnp.concatenate([places[None], jax.lax.scan(next_row, places, a)[1]])
    return rows[(a >= 0).sum(), (b >= 0).sum()]
