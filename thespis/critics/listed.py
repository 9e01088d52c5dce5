"""Critics on a decoder: of a conversation, and of the listed utterances that may follow it."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
from jaxtyping import Array, Float, Int, Key, Shaped

from thespis.nets.listing import Listing
from thespis.nets.mlp import MLP, Initialiser, Linear


class TextHead(eqx.Module):
    """From features of a decoder to ``count`` numbers."""

    mlp: MLP
    out: Linear

    def __init__(
        self, width: int, hidden: tuple[int, ...], count: int, init: Initialiser, activation: Callable[[Array], Array],
        key: Key[Array, ""],
    ):  # fmt: skip
        mlp_key, out_key = jax.random.split(key)
        self.mlp = MLP(width, hidden, init, activation, mlp_key)
        self.out = Linear(hidden[-1] if hidden else width, count, init, out_key)

    def __call__(self, features: Float[Array, " width"]) -> Float[Array, " count"]:
        """The numbers."""
        return self.out(self.mlp(features))


class ListedValue(eqx.Module):
    """``Q(text, .)`` of all listed utterances: a head on what a decoder of its own makes of the text."""

    listing: Listing
    head: TextHead

    def __call__(self, observation: Int[Array, " length"], actions: Shaped[Array, " k"]) -> Float[Array, " k"]:
        """The values of ``k`` utterances, by their numbers."""
        return self.head(self.listing.before(observation))[actions]
