"""What may be said: rules over token ids that a sampler follows and a learner can follow again.

A grammar is an automaton, batched over rows: where it starts, what it allows, where a token leads. A learner runs it
over the tokens that were sampled to know among which tokens each was chosen.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree


@runtime_checkable
class Grammar(Protocol):
    """An automaton over tokens."""

    def start(self, rows: int) -> PyTree:
        """The state before the first token."""
        ...

    def allowed(self, state: PyTree, vocabulary: int) -> Bool[Array, "row vocabulary"] | None:
        """What may come next, never nothing; ``None``: anything."""
        ...

    def after(self, state: PyTree, token: Int[Array, " row"]) -> tuple[PyTree, Bool[Array, " row"]]:
        """The state after a token, and whether the utterance is complete with it."""
        ...


class Free(eqx.Module):
    """Anything may be said."""

    def start(self, rows: int) -> PyTree:
        """Nothing to remember but how many rows there are."""
        return jnp.zeros(rows, bool)

    def allowed(self, state: PyTree, vocabulary: int) -> Bool[Array, "row vocabulary"] | None:
        """Anything."""
        return None

    def after(self, state: PyTree, token: Int[Array, " row"]) -> tuple[PyTree, Bool[Array, " row"]]:
        """Never complete by itself."""
        return state, state


class OneOf(eqx.Module):
    """One of the listed utterances of each row, padded with -1; a list may be padded with empty ones.

    None may be the beginning of another: let all end with a token that stops.
    """

    choices: Int[Array, "row choice time"]

    def start(self, rows: int) -> PyTree:
        """The tick, and which choices fit what was said."""
        return jnp.array(0), self.choices[..., 0] >= 0

    def allowed(self, state: PyTree, vocabulary: int) -> Bool[Array, "row vocabulary"] | None:
        """The next tokens of the choices that still fit."""
        tick, fits = state
        following = jnp.where(fits, jnp.take(self.choices, tick, axis=2, mode="clip"), -1)
        named = (following[..., None] == jnp.arange(vocabulary)).any(axis=1)
        return named | ~named.any(axis=-1, keepdims=True)  # a row that has ended is drawn too, and not looked at

    def after(self, state: PyTree, token: Int[Array, " row"]) -> tuple[PyTree, Bool[Array, " row"]]:
        """Complete when what fits is at its end."""
        tick, fits = state
        fits &= jnp.take(self.choices, tick, axis=2, mode="clip") == token[:, None]
        padded = jnp.pad(self.choices, ((0, 0), (0, 0), (0, 1)), constant_values=-1)
        goes_on = fits & (jnp.take(padded, tick + 1, axis=2, mode="clip") >= 0)
        return (tick + 1, fits), ~goes_on.any(axis=1)
