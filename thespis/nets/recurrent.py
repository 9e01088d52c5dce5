"""Recurrent cores: cells with a memory of the episode so far, as settings of the networks that hold them."""

from __future__ import annotations

import abc
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree


@jax.custom_jvp
def round_product(product: Array) -> Array:
    """The same finite numbers, and no term of a fused multiply-add.

    Of a sum of two products, compilers fuse one with the sum, which is then not rounded, and which one depends on the
    program around. With one of them passed through here, the sum has the same bits in acting and in training.
    """
    largest = jnp.finfo(product.dtype).max
    return jax.lax.clamp(-largest, product, largest)


@round_product.defjvp
def _round_product_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return round_product(*primals), tangents[0]


class RecurrentCore(abc.ABC):
    """Slot: the recurrent core after the hidden layers of a network, a frozen dataclass.

    It builds a cell, an ``equinox.Module`` with the parameters, and says how the cell is used. The memory is any tree
    of arrays that are zero at the beginning of an episode.
    """

    hidden_size: int
    """Length of the feature vector."""

    @abc.abstractmethod
    def build(self, in_size: int, key: Key[Array, ""]) -> Any:
        """The cell for inputs of ``in_size`` numbers, with fresh parameters."""

    @abc.abstractmethod
    def init_memory(self, cell: Any, n: int) -> PyTree[Float[Array, "n ..."]]:
        """Memory of ``n`` fresh episodes: zeros."""

    def project(self, cell: Any, x: Float[Array, " in"]) -> PyTree:
        """What a step computes from its input alone; a rollout's inputs are projected all at once.

        By default the input itself.
        """
        return x

    @abc.abstractmethod
    def step(self, cell: Any, projected: PyTree, memory: PyTree) -> tuple[Float[Array, " hidden_size"], PyTree]:
        """Features of one projected input, and the memory after it."""

    def resume_memory(self, cell: Any, memory: PyTree) -> PyTree:
        """The initial memory of a rollout that is trained on: the same values, with their past's gradient if known.

        By default the memory itself: gradients end where a rollout starts.
        """
        return memory
