"""Seeds that lie apart: each in buffers of its own, so that it runs, and learns, in programs of its own.

On CPUs a program for one seed, called for every seed by as many threads as there are cores, is faster than one for all
seeds at once, which has batched products that use the cores badly. It also makes what a seed does independent of its
company, bit by bit. Accelerators are too wide for one seed: there one program serves all.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from thespis.core.spread import mesh

Answer = TypeVar("Answer")
Tree = TypeVar("Tree")


class Apart:
    """An array ``[seed, ...]`` of one array ``[1, ...]`` a seed, or what is the same for all: ``[]``.

    A leaf of a tree, which numpy and checkpoints take for an array. JAX does not: see :func:`together`.
    """

    def __init__(self, parts: Sequence[jax.Array]):
        self.parts = tuple(parts)
        self.dtype, one = self.parts[0].dtype, self.parts[0].shape
        self.shape = (len(self.parts), *one[1:]) if one else ()

    @property
    def held(self) -> tuple[jax.Array, ...]:
        """The arrays that follow each other in memory where this is written down."""
        return self.parts if self.shape else self.parts[:1]

    @property
    def nbytes(self) -> int:
        """Bytes that :attr:`held` takes."""
        return sum(part.nbytes for part in self.held)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """All seeds in one new array."""
        return np.concatenate(self.held, dtype=dtype) if self.shape else np.array(self.parts[0], dtype)

    def __getitem__(self, index: Any) -> np.ndarray:
        """Of all seeds in one array."""
        return np.asarray(self)[index]

    def __int__(self) -> int:
        """The number that is the same for all."""
        return int(self.parts[0])


def programs(seeds: int) -> int:
    """How many programs run ``seeds`` seeds here: one for each on CPUs, else one for all."""
    return seeds if jax.default_backend() == "cpu" and mesh() is None else 1


def pieces(tree: PyTree, count: int) -> list[PyTree]:
    """The tree of each of ``count`` seeds, leaves ``[1, ...]``: copied, unless they lie apart already.

    One piece is the tree itself.
    """

    def piece(leaf: Any, i: int) -> Any:
        if isinstance(leaf, Apart):
            return leaf.parts[i]
        return jnp.array(leaf[i : i + 1] if leaf.ndim else leaf)

    return [tree] if count == 1 else [jax.tree.map(lambda x, i=i: piece(x, i), tree) for i in range(count)]


def joined(trees: Sequence[PyTree]) -> PyTree:
    """One tree of leaves ``[seed, ...]`` that lie apart; nothing is copied but random keys, which no array can hold."""

    def leaf(*parts: Any) -> Any:
        if jnp.issubdtype(parts[0].dtype, jax.dtypes.prng_key):
            return jnp.concatenate(parts)
        return Apart(parts)

    return trees[0] if len(trees) == 1 else jax.tree.map(leaf, *trees)


def placed(tree: PyTree, count: int) -> PyTree:
    """A copy of the arrays of a tree ``[seed, ...]``, those of each of ``count`` seeds in buffers of their own."""
    if count == 1:
        return jax.tree.map(jnp.array, tree)
    return joined(pieces(jax.tree.map(lambda x: np.asarray(x) if isinstance(x, Apart) else x, tree), count))


def together(tree: PyTree) -> PyTree:
    """The same leaves as arrays that JAX takes, copied where they lay apart."""
    leaves, structure = jax.tree.flatten(tree)
    found = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Apart)]
    for i, whole in zip(found, _concatenated([leaves[i].held for i in found]) if found else [], strict=True):
        leaves[i] = whole
    return structure.unflatten(leaves)


@jax.jit
def _concatenated(columns: list[Sequence[jax.Array]]) -> list[jax.Array]:
    return [jnp.concatenate(column) if column[0].ndim else column[0] for column in columns]


def zeros_like(leaf: jax.Array | Apart) -> jax.Array | Apart:
    """Zeros that lie as ``leaf`` does."""
    if isinstance(leaf, Apart):
        return Apart([jnp.zeros_like(part) for part in leaf.parts])
    return jnp.zeros_like(leaf, device=leaf.sharding)


def lone(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """``function`` (trees in and out, no gradient), whose ``vmap`` over one seed is itself.

    Under ``vmap``, be it of one seed, a loop that ends when its own state says so copies all of it in every round.
    """
    called = jax.custom_batching.custom_vmap(function)

    @called.def_vmap
    def _(count: int, batched: list[PyTree], *args: PyTree) -> tuple[PyTree, PyTree]:
        args = jax.tree.map(jnp.asarray, args)  # a constant of the program arrives here as a number
        if count > 1:
            axes = jax.tree.map(lambda has: 0 if has else None, batched)
            found = jax.vmap(function, tuple(axes))(*args)
        else:
            alone = called(*jax.tree.map(lambda x, has: jnp.squeeze(x, 0) if has else x, args, tuple(batched)))
            found = jax.tree.map(lambda x: x[None], alone)
        return found, jax.tree.map(lambda _: True, found)

    return functools.wraps(function)(lambda *args, **named: called(*args, **named))  # a method, too


def each(function: Callable[..., PyTree], *args: PyTree) -> PyTree:
    """``function`` of each seed's arguments, inside a program: leaves in ``[seed, ...]``, out ``[seed, ...]``.

    The bits of a seed are those that it has in a program of its own.
    """
    count = jax.tree.leaves(args)[0].shape[0]
    if programs(count) == 1:
        return jax.vmap(function)(*args)

    def one(given: tuple[PyTree, ...]) -> PyTree:
        return jax.tree.map(lambda x: x[0], jax.vmap(function)(*jax.tree.map(lambda x: x[None], given)))

    return jax.lax.map(one, args)


def each_in_place(function: Callable[[Tree], Tree], tree: Tree, count: int) -> Tree:
    """``function`` of each seed's piece of a tree, leaves ``[1, ...]``, inside a program; leaves ``[]`` are of all.

    The bits of a seed are those that it has in a program of its own, and the whole stays where it lies.
    """
    if programs(count) == 1:
        return function(tree)

    def seed(i: jax.Array, whole: Tree) -> Tree:
        cut = jax.tree.map(lambda x, same: jax.lax.dynamic_slice_in_dim(x, i, 1) if x.ndim else same, whole, tree)
        done = function(cut)
        return jax.tree.map(lambda x, y: jax.lax.dynamic_update_slice_in_dim(x, y, i, 0) if x.ndim else y, whole, done)

    return jax.lax.fori_loop(0, count, seed, tree)


def in_turn(threads: ThreadPoolExecutor, function: Callable[[Any], Answer], given: Sequence[Any]) -> list[Answer]:
    """``function`` of each, by all ``threads``; one alone is done at once, here."""
    return [function(given[0])] if len(given) == 1 else list(threads.map(function, given))


def threads(name: str) -> ThreadPoolExecutor:
    """As many threads as this process has cores; none is started before it is needed."""
    return ThreadPoolExecutor(cores(), name)


def cores() -> int:
    """Cores of this machine that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # Linux alone can tell
        return os.cpu_count() or 1
