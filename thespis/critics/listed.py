"""Critics on a decoder: of the utterances of a list, and of what stands before them."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
from jaxtyping import Array, Float, Int, Key, Shaped

from thespis.nets.listing import Listing
from thespis.nets.mlp import MLP, Initialiser, Linear


class TextHead(eqx.Module):
    """From features of a decoder to one number."""

    mlp: MLP
    out: Linear

    def __init__(
        self, width: int, hidden: tuple[int, ...], init: Initialiser, activation: Callable[[Array], Array],
        key: Key[Array, ""],
    ):  # fmt: skip
        mlp_key, out_key = jax.random.split(key)
        self.mlp = MLP(width, hidden, init, activation, mlp_key)
        self.out = Linear(hidden[-1] if hidden else width, 1, init, out_key)

    def __call__(self, features: Float[Array, " width"]) -> Float[Array, ""]:
        """The number."""
        return self.out(self.mlp(features))[0]


class ListedValue(eqx.Module):
    """``Q(text, .)`` of listed utterances: a head on what a decoder of its own makes of each, behind its last id."""

    listing: Listing
    head: TextHead

    def __call__(self, observation: Int[Array, " length"], actions: Shaped[Array, " k"]) -> Float[Array, " k"]:
        """The values of ``k`` utterances, by their numbers."""
        return jax.vmap(self.head)(self.listing.behind(observation))[actions]
