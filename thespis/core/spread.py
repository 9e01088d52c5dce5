"""How one program's arrays are shared by several devices; where there is one device, all of this says nothing.

A loop that runs one program on several devices sets a mesh while the program is traced. Where rows are chosen anew, by
sampling or shuffling, the compiler would give all of them to every device, or carry whole columns around: there it is
told what to do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, PartitionSpec
from jaxtyping import Array, Int

DEVICES = "devices"
"""The name of the mesh's one axis."""

Tree = TypeVar("Tree")


def mesh() -> AbstractMesh | None:
    """The mesh that the program in the making runs on; ``None`` on one device."""
    found = jax.sharding.get_abstract_mesh()
    return found if DEVICES in found.axis_names else None


def spread(tree: Tree, axis: int) -> Tree:
    """The same arrays, axis ``axis`` of each shared out evenly; as they are where it does not divide by the devices."""
    over = mesh()
    if over is None:
        return tree
    spec, count = PartitionSpec(*[None] * axis, DEVICES), over.size

    def leaf(x: Array) -> Array:
        return x if x.shape[axis] % count else jax.lax.with_sharding_constraint(x, spec)

    return jax.tree.map(leaf, tree)


def whole(tree: Tree) -> Tree:
    """The same arrays, all of them on every device: what follows may choose rows without asking the others."""
    if mesh() is None:
        return tree
    return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, PartitionSpec()), tree)


def pick(tree: Tree, rows: Int[Array, "length batch"], columns: Int[Array, " batch"]) -> Tree:
    """``x[rows, columns]`` of arrays ``[row, column, ...]`` whose columns the devices share; so is ``batch`` after it.

    Each device looks up what it holds, and only what was chosen travels.
    """
    over = mesh()
    if over is None:
        return jax.tree.map(lambda x: x[rows, columns[None]], tree)
    scatter = columns.shape[0] % over.size == 0

    def here(tree: Any, rows: Array, columns: Array) -> Any:
        def leaf(x: Array) -> Array:
            held = x.shape[1]
            local = columns - jax.lax.axis_index(DEVICES) * held
            mine = (local >= 0) & (local < held)
            found = x[rows, jnp.where(mine, local, 0)[None]]
            found = jnp.where(mine.reshape(1, -1, *[1] * (found.ndim - 2)), found, jnp.zeros((), x.dtype))
            return _sum(found.astype("uint8") if x.dtype == bool else found, scatter).astype(x.dtype)

        return jax.tree.map(leaf, tree)

    shared, same = PartitionSpec(None, DEVICES), PartitionSpec()
    out = shared if scatter else same
    return jax.shard_map(here, in_specs=(shared, same, same), out_specs=out, check_vma=False)(tree, rows, columns)


def each_its_own(change: Callable[..., Tree], *trees: Any) -> Tree:
    """``change(*trees)`` of arrays ``[row, column, ...]``, each device by itself with the columns that it holds."""
    if mesh() is None:
        return change(*trees)
    shared = PartitionSpec(None, DEVICES)
    given = (shared,) * len(trees)
    return jax.shard_map(change, in_specs=given, out_specs=shared, check_vma=False)(*trees)


def _sum(x: Array, scatter: bool) -> Array:
    """Over the devices; each keeps its share of axis 1, or all of it."""
    if scatter:
        return jax.lax.psum_scatter(x, DEVICES, scatter_dimension=1, tiled=True)
    return jax.lax.psum(x, DEVICES)
