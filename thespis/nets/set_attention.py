"""Attention over sets of entities: any number of rows becomes one vector.

A set is a box of two axes that is no image; a row of zeros is an absent entity. The query comes from the rest of the
observation, keys and values from the rows: ``sum_j softmax_j(q . k_j / sqrt(size)) v_j``, zeros where no entity is
present. The order of rows does not matter.
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

_MASKED_SCORE = -1e9


@dataclasses.dataclass(frozen=True)
class SetAttention:
    """Attention with ``embed_size`` numbers per set, as a setting for how sets of entities are encoded."""

    embed_size: int = 32


class SetAttentionLayer(eqx.Module):
    """Attention layer that encodes one set as one vector."""

    query: Linear
    keys: Linear
    values: Linear

    def __init__(self, context_size: int, row_size: int, embed_size: int, key: Key[Array, ""]):
        query_key, keys_key, values_key = jax.random.split(key, 3)
        self.query = Linear(context_size, embed_size, orthogonal(1.0), query_key)
        self.keys = Linear(row_size, embed_size, orthogonal(1.0), keys_key)
        self.values = Linear(row_size, embed_size, orthogonal(2**0.5), values_key)

    def __call__(self, context: Float[Array, " context"], rows: Float[Array, "n row"]) -> Float[Array, " size"]:
        """The weighted mean of the values of entities that are present, each entry in [-1, 1]."""
        present = jnp.any(rows != 0, axis=1)
        query, keys = self.query(context), jax.vmap(self.keys)(rows)
        weight = jax.nn.softmax(jnp.where(present, keys @ query / query.size**0.5, _MASKED_SCORE)) * present
        return weight @ jnp.tanh(jax.vmap(self.values)(rows))


def is_entity_set(space: Space) -> bool:
    """Whether a leaf space is a set of entities: a row for each of several."""
    return isinstance(space, Box) and len(space.shape) == 2 and space.dtype != "uint8"


def build_set_attention(
    shapes: list[tuple[int, ...]], context_size: int, config: SetAttention, key: Key[Array, ""]
) -> tuple[SetAttentionLayer, ...]:
    """Build one attention layer per set, for sets of ``shapes`` and a query from ``context_size`` numbers.

    Raises ``UserError`` if there are sets and ``context_size`` is 0.
    """
    if shapes and not context_size:
        raise UserError(
            "set attention takes its query from the rest of the observation, and this environment has only sets: "
            "leave the set encoder out"
        )
    keys = jax.random.split(key, max(len(shapes), 1))
    return tuple(
        SetAttentionLayer(context_size, shape[1], config.embed_size, k) for shape, k in zip(shapes, keys, strict=False)
    )
