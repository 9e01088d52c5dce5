"""Grammars for constrained decoding: which tokens are allowed next, for sampling and again for learning.

A grammar is an automaton, batched over rows: its initial state, the tokens it allows, and its transitions. A learner
runs it over the sampled tokens to know among which tokens each was chosen.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree


@runtime_checkable
class Grammar(Protocol):
    """An automaton over tokens."""

    def init_state(self, batch_size: int) -> PyTree:
        """The state before the first token."""
        ...

    def allowed_tokens(self, state: PyTree, vocab_size: int) -> Bool[Array, "row vocabulary"] | None:
        """The mask of tokens allowed next, never empty; ``None``: all tokens."""
        ...

    def advance(self, state: PyTree, token: Int[Array, " row"]) -> tuple[PyTree, Bool[Array, " row"]]:
        """The state after a token, and whether the response is complete with it."""
        ...


class NoGrammar(eqx.Module):
    """Unconstrained decoding: all tokens are allowed."""

    def init_state(self, batch_size: int) -> PyTree:
        """A state without information, of the right batch size."""
        return jnp.zeros(batch_size, bool)

    def allowed_tokens(self, state: PyTree, vocab_size: int) -> Bool[Array, "row vocabulary"] | None:
        """Tokens allowed next; ``None``, as all tokens are."""
        return None

    def advance(self, state: PyTree, token: Int[Array, " row"]) -> tuple[PyTree, Bool[Array, " row"]]:
        """Responses are never complete by grammar."""
        return state, state


class ChoiceGrammar(eqx.Module):
    """A list of allowed responses for each row, padded with -1; lists may be padded with empty responses.

    No response may be a prefix of another: let all end with a stop token.
    """

    choices: Int[Array, "row choice time"]

    def init_state(self, batch_size: int) -> PyTree:
        """The step, and which choices match the tokens so far."""
        return jnp.array(0), self.choices[..., 0] >= 0

    def allowed_tokens(self, state: PyTree, vocab_size: int) -> Bool[Array, "row vocabulary"] | None:
        """The next tokens of the choices that still match."""
        step, matches = state
        next_tokens = jnp.where(matches, jnp.take(self.choices, step, axis=2, mode="clip"), -1)
        named = (next_tokens[..., None] == jnp.arange(vocab_size)).any(axis=1)
        return named | ~named.any(axis=-1, keepdims=True)  # rows that have ended are sampled too, and ignored

    def advance(self, state: PyTree, token: Int[Array, " row"]) -> tuple[PyTree, Bool[Array, " row"]]:
        """Complete when the matching choices are at their end."""
        step, matches = state
        matches &= jnp.take(self.choices, step, axis=2, mode="clip") == token[:, None]
        padded = jnp.pad(self.choices, ((0, 0), (0, 0), (0, 1)), constant_values=-1)
        continues = matches & (jnp.take(padded, step + 1, axis=2, mode="clip") >= 0)
        return (step + 1, matches), ~continues.any(axis=1)
