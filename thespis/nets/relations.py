"""Attention over others, of whom an observation has a row each: however many there are, they become one vector.

A set is a box of two axes that is no image; a row of zeros is nobody. What else is seen asks, rows answer:
``sum_j softmax_j(q . k_j / sqrt(size)) v_j``, zeros where nobody is there. Order means nothing.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from thespis.core.errors import UserError
from thespis.core.spaces import Box, Space
from thespis.nets.mlp import Linear, orthogonal

_NOBODY = -1e9


@dataclasses.dataclass(frozen=True)
class Attention:
    """Attention with ``size`` numbers for each set, as a choice of how others are seen."""

    size: int = 32


class Attended(eqx.Module):
    """One set as one vector."""

    query: Linear
    keys: Linear
    values: Linear

    def __init__(self, asks: int, row: int, size: int, key: Key[Array, ""]):
        query_key, keys_key, values_key = jax.random.split(key, 3)
        self.query = Linear(asks, size, orthogonal(1.0), query_key)
        self.keys = Linear(row, size, orthogonal(1.0), keys_key)
        self.values = Linear(row, size, orthogonal(2**0.5), values_key)

    def __call__(self, asks: Float[Array, " asks"], rows: Float[Array, "n row"]) -> Float[Array, " size"]:
        """The weighted mean of what those who are there say, each number in [-1, 1]."""
        there = jnp.any(rows != 0, axis=1)
        query, keys = self.query(asks), jax.vmap(self.keys)(rows)
        weight = jax.nn.softmax(jnp.where(there, keys @ query / query.size**0.5, _NOBODY)) * there
        return weight @ jnp.tanh(jax.vmap(self.values)(rows))


def is_set(space: Space) -> bool:
    """Whether a leaf space has a row for each of several others."""
    return isinstance(space, Box) and len(space.shape) == 2 and space.dtype != "uint8"


def attend(shapes: list[tuple[int, ...]], asks: int, attention: Attention, key: Key[Array, ""]) -> tuple[Attended, ...]:
    """What reads sets of such shapes when asked by ``asks`` numbers. Raises ``UserError`` if nothing is left to ask."""
    if shapes and not asks:
        raise UserError("attention asks others by what is seen beside them, and this world shows nothing else")
    keys = jax.random.split(key, max(len(shapes), 1))
    return tuple(Attended(asks, shape[1], attention.size, k) for shape, k in zip(shapes, keys, strict=False))
