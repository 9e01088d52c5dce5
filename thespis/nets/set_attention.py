"""Encoders of sets of entities: any number of rows becomes one vector, by attention for one.

A set is a box of two axes that is no image; a row of zeros is an absent entity. In attention the query comes from the
rest of the observation, keys and values from the rows: ``sum_j softmax_j(q . k_j / sqrt(size)) v_j``, zeros where no
entity is present. The order of rows does not matter.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from thespis.core.errors import UserError
from thespis.core.spaces import Box, Space
from thespis.nets.mlp import Linear, orthogonal

_MASKED_SCORE = -1e9


@runtime_checkable
class SetEncoderNetwork(Protocol):
    """Network of a set encoder: one set becomes one vector."""

    def __call__(self, context: Float[Array, " context"], rows: Float[Array, "n row"]) -> Float[Array, " size"]:
        """The vector of a set, from its rows and from the rest of the observation; a row of zeros is absent."""
        ...


class SetEncoder(abc.ABC):
    """Slot: how a set of entities becomes one vector, a frozen dataclass."""

    @abc.abstractmethod
    def build(self, context_size: int, row_size: int, key: Key[Array, ""]) -> SetEncoderNetwork:
        """The network of one set with rows of ``row_size`` numbers, an ``equinox.Module``.

        ``context_size``: how many numbers the rest of the observation has; 0 where there are only sets.
        """


@dataclasses.dataclass(frozen=True)
class SetAttention(SetEncoder):
    """Attention with ``embed_size`` numbers per set, as a setting for how sets of entities are encoded."""

    embed_size: int = 32
    """Length of queries, keys and values."""

    def build(self, context_size: int, row_size: int, key: Key[Array, ""]) -> SetAttentionLayer:
        """The attention layer of one set. Raises ``UserError`` where nothing else is observed."""
        if not context_size:
            raise UserError(
                "set attention takes its query from the rest of the observation, and this environment has only sets: "
                "leave the set encoder out"
            )
        return SetAttentionLayer(context_size, row_size, self.embed_size, key)


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


def build_set_encoders(
    shapes: list[tuple[int, ...]], context_size: int, config: SetEncoder, key: Key[Array, ""]
) -> tuple[SetEncoderNetwork, ...]:
    """Build one network per set, for sets of ``shapes`` beside ``context_size`` other numbers."""
    keys = jax.random.split(key, max(len(shapes), 1))
    return tuple(config.build(context_size, shape[1], k) for shape, k in zip(shapes, keys, strict=False))
