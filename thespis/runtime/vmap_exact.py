"""Programs whose results do not depend on the rest: per-seed programs, sharding over devices, separate functions.

Per-seed programs have each seed's arrays in buffers of their own, so that it trains in a program of its own. On CPUs a
program for one seed, called for every seed by as many threads as there are cores, is faster than one for all seeds at
once, whose batched products use the cores badly. It also makes a seed's results independent of the other seeds, bit by
bit. One seed does not make full use of an accelerator: there one program serves all.

A loop that runs one program on several devices sets a mesh while the program is traced. Where rows are gathered, by
sampling or shuffling, the compiler would replicate them on every device, or move whole columns: the functions that
shard a program's arrays give it the sharding. On a single device they do nothing.

:func:`prevent_inlining` keeps a function a separate computation inside a larger program, so that its bits do not
depend on the rest. XLA contracts ``a * b + c`` to one rounding wherever it has fused the two, and adds in the order of
the memory layout. Fusion and layout depend on everything that surrounds a function. A function that is called, not
inlined, on arguments of a fixed layout is compiled as if it stood alone: the compiled loop, the host loop and a
compiled environment behind the host contract then give the same numbers.
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
from jax.experimental.layout import Layout, with_layout_constraint
from jax.experimental.xla_metadata import set_xla_metadata
from jax.sharding import AbstractMesh, PartitionSpec
from jaxtyping import Array, Bool, Int, PyTree

DEVICE_AXIS = "devices"
"""Name of the mesh's only axis."""

Tree = TypeVar("Tree")


def current_mesh() -> AbstractMesh | None:
    """The mesh of the program that is being traced; ``None`` on one device."""
    mesh = jax.sharding.get_abstract_mesh()
    return mesh if DEVICE_AXIS in mesh.axis_names else None


def shard_axis(tree: Tree, axis: int) -> Tree:
    """Shard axis ``axis`` of each array evenly; arrays whose axis is not divisible by the devices stay as they are."""
    mesh = current_mesh()
    if mesh is None:
        return tree
    spec, count = PartitionSpec(*[None] * axis, DEVICE_AXIS), mesh.size

    def leaf(x: Array) -> Array:
        return x if x.shape[axis] % count else jax.lax.with_sharding_constraint(x, spec)

    return jax.tree.map(leaf, tree)


def replicate(tree: Tree) -> Tree:
    """Replicate the arrays on every device, so that a following gather needs no communication."""
    if current_mesh() is None:
        return tree
    return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, PartitionSpec()), tree)


def take_sharded(tree: Tree, rows: Int[Array, "length batch"], columns: Int[Array, " batch"]) -> Tree:
    """Gather ``x[rows, columns]`` from arrays ``[row, column, ...]`` with sharded columns; shards the batch.

    Each device looks up the columns that it stores, and only the gathered entries are sent.
    """
    mesh = current_mesh()
    if mesh is None:
        return jax.tree.map(lambda x: x[rows, columns[None]], tree)
    scatter = columns.shape[0] % mesh.size == 0

    def gather(tree: Any, rows: Array, columns: Array) -> Any:
        def leaf(x: Array) -> Array:
            local_size = x.shape[1]
            local = columns - jax.lax.axis_index(DEVICE_AXIS) * local_size
            mine = (local >= 0) & (local < local_size)
            values = x[rows, jnp.where(mine, local, 0)[None]]
            values = jnp.where(mine.reshape(1, -1, *[1] * (values.ndim - 2)), values, jnp.zeros((), x.dtype))
            return _sum_devices(values.astype("uint8") if x.dtype == bool else values, scatter).astype(x.dtype)

        return jax.tree.map(leaf, tree)

    shared, same = PartitionSpec(None, DEVICE_AXIS), PartitionSpec()
    out = shared if scatter else same
    return jax.shard_map(gather, in_specs=(shared, same, same), out_specs=out, check_vma=False)(tree, rows, columns)


def map_shards(function: Callable[..., Tree], *trees: Any) -> Tree:
    """``function(*trees)`` of arrays ``[row, column, ...]``, on each device with its own columns."""
    if current_mesh() is None:
        return function(*trees)
    shared = PartitionSpec(None, DEVICE_AXIS)
    in_specs = (shared,) * len(trees)
    return jax.shard_map(function, in_specs=in_specs, out_specs=shared, check_vma=False)(*trees)


def _sum_devices(x: Array, scatter: bool) -> Array:
    """Sum over devices; each keeps its share of axis 1, or all of it."""
    if scatter:
        return jax.lax.psum_scatter(x, DEVICE_AXIS, scatter_dimension=1, tiled=True)
    return jax.lax.psum(x, DEVICE_AXIS)


Result = TypeVar("Result")


class PerSeedArray:
    """An array ``[seed, ...]`` stored as one array ``[1, ...]`` per seed, or a scalar ``[]`` that is the same for all.

    A leaf of a tree that numpy and checkpoints take for an array. JAX does not: see :func:`concat_seeds`.
    """

    def __init__(self, per_seed: Sequence[jax.Array | np.ndarray]):
        self.per_seed = tuple(per_seed)
        self.dtype, first_shape = self.per_seed[0].dtype, self.per_seed[0].shape
        self.shape = (len(self.per_seed), *first_shape[1:]) if first_shape else ()

    @property
    def buffers(self) -> tuple[jax.Array | np.ndarray, ...]:
        """The arrays whose concatenation is the stored value."""
        return self.per_seed if self.shape else self.per_seed[:1]

    @property
    def nbytes(self) -> int:
        """Size of all :attr:`buffers` in bytes."""
        return sum(part.nbytes for part in self.buffers)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """All seeds in one new array."""
        return np.concatenate(self.buffers, dtype=dtype) if self.shape else np.array(self.per_seed[0], dtype)

    def __getitem__(self, index: Any) -> np.ndarray:
        """Index into the array of all seeds."""
        return np.asarray(self)[index]

    def __int__(self) -> int:
        """The scalar that is the same for all seeds."""
        return int(self.per_seed[0])


def num_programs(num_seeds: int) -> int:
    """Number of programs that run ``num_seeds`` seeds: one for each on CPUs, else one for all."""
    return num_seeds if jax.default_backend() == "cpu" and current_mesh() is None else 1


def split_seeds(tree: PyTree, num_seeds: int) -> list[PyTree]:
    """The trees of ``num_seeds`` single seeds, leaves ``[1, ...]``: copied, unless they are stored per seed already.

    With one seed this is the tree itself.
    """

    def piece(leaf: Any, i: int) -> Any:
        if isinstance(leaf, PerSeedArray):
            return leaf.per_seed[i]
        return jnp.array(leaf[i : i + 1] if leaf.ndim else leaf)

    return [tree] if num_seeds == 1 else [jax.tree.map(lambda x, i=i: piece(x, i), tree) for i in range(num_seeds)]


def join_seeds(trees: Sequence[PyTree]) -> PyTree:
    """One tree of per-seed leaves ``[seed, ...]``; only random keys are copied, as numpy has none."""

    def leaf(*parts: Any) -> Any:
        if jnp.issubdtype(parts[0].dtype, jax.dtypes.prng_key):
            return jnp.concatenate(parts)
        return PerSeedArray(parts)

    return trees[0] if len(trees) == 1 else jax.tree.map(leaf, *trees)


def copy_per_seed(tree: PyTree, num_seeds: int) -> PyTree:
    """A copy of the arrays of a tree ``[seed, ...]``, with buffers of their own for each of ``num_seeds`` seeds."""
    if num_seeds == 1:
        return jax.tree.map(jnp.array, tree)
    return join_seeds(
        split_seeds(jax.tree.map(lambda x: np.asarray(x) if isinstance(x, PerSeedArray) else x, tree), num_seeds)
    )


def concat_seeds(tree: PyTree) -> PyTree:
    """The same tree with ordinary JAX arrays; per-seed leaves are concatenated into copies."""
    leaves, structure = jax.tree.flatten(tree)
    indices = [i for i, leaf in enumerate(leaves) if isinstance(leaf, PerSeedArray)]
    for i, whole in zip(indices, _concat_buffers([leaves[i].buffers for i in indices]) if indices else [], strict=True):
        leaves[i] = whole
    return structure.unflatten(leaves)


@jax.jit
def _concat_buffers(columns: list[Sequence[jax.Array]]) -> list[jax.Array]:
    return [jnp.concatenate(column) if column[0].ndim else column[0] for column in columns]


def zeros_like(leaf: jax.Array | PerSeedArray) -> jax.Array | PerSeedArray:
    """Zeros with the layout of ``leaf``."""
    if isinstance(leaf, PerSeedArray):
        return PerSeedArray([jnp.zeros_like(part) for part in leaf.per_seed])
    return jnp.zeros_like(leaf, device=leaf.sharding)


def with_layout(leaf: Any, values: Any) -> Any:
    """A copy of the array ``values``, ``[seed, ...]``, with the layout of ``leaf``."""
    if isinstance(leaf, PerSeedArray):
        return PerSeedArray([jnp.array(values[i : i + 1]) for i in range(len(leaf.per_seed))])
    return jax.device_put(jnp.array(values), leaf.sharding)


def skip_unit_vmap(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """``function`` (trees in and out, no gradient), whose ``vmap`` over a single seed calls it without ``vmap``.

    Under ``vmap``, even over one seed, a loop with a state-dependent end copies its whole state in every iteration.
    """
    called = _unit_or_mapped(function, function)
    return functools.wraps(function)(lambda *args, **named: called(*args, **named))  # a function, so that methods bind


def call_either(function: Callable[..., PyTree], other: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """``call(condition, *args)``: ``function(*args)`` where the condition is true, else ``other(*args)``.

    Trees in and out, no gradient. One of them is computed, also under a ``vmap`` over a single seed; under one over
    several seeds it is both, for all of them. A seed's results are the same in either case.
    """

    def both(condition: Bool[Array, ""], *args: PyTree) -> PyTree:
        return jax.tree.map(lambda x, y: jnp.where(condition, x, y), function(*args), other(*args))

    return _unit_or_mapped(lambda condition, *args: jax.lax.cond(condition, function, other, *args), both)


def _unit_or_mapped(function: Callable[..., PyTree], mapped: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """``function``, which a ``vmap`` over a single seed calls without ``vmap``; one over several maps ``mapped``."""
    called = jax.custom_batching.custom_vmap(function)

    @called.def_vmap
    def _(count: int, batched: list[PyTree], *args: PyTree) -> tuple[PyTree, PyTree]:
        args = jax.tree.map(jnp.asarray, args)  # constants of the program arrive here as numbers
        if count > 1:
            axes = jax.tree.map(lambda has: 0 if has else None, batched)
            result = jax.vmap(mapped, tuple(axes))(*args)
        else:
            single = called(*jax.tree.map(lambda x, has: jnp.squeeze(x, 0) if has else x, args, tuple(batched)))
            result = jax.tree.map(lambda x: x[None], single)
        return result, jax.tree.map(lambda _: True, result)

    return called


def map_seeds(function: Callable[..., PyTree], *args: PyTree) -> PyTree:
    """``function`` of each seed's arguments, inside a program: leaves in ``[seed, ...]``, out ``[seed, ...]``.

    A seed's bits are the same as in a program of its own.
    """
    count = jax.tree.leaves(args)[0].shape[0]
    if num_programs(count) == 1:
        return jax.vmap(function)(*args)

    def per_seed(given: tuple[PyTree, ...]) -> PyTree:
        return jax.tree.map(lambda x: x[0], jax.vmap(function)(*jax.tree.map(lambda x: x[None], given)))

    return jax.lax.map(per_seed, args)


def map_seeds_in_place(function: Callable[[Tree], Tree], tree: Tree, num_seeds: int) -> Tree:
    """``function`` of each seed's slice of a tree, leaves ``[1, ...]``, inside a program; leaves ``[]`` are shared.

    A seed's bits are the same as in a program of its own, and the whole tree is updated in place.
    """
    if num_programs(num_seeds) == 1:
        return function(tree)

    def seed(i: jax.Array, whole: Tree) -> Tree:
        piece = jax.tree.map(lambda x, same: jax.lax.dynamic_slice_in_dim(x, i, 1) if x.ndim else same, whole, tree)
        updated = function(piece)
        return jax.tree.map(
            lambda x, y: jax.lax.dynamic_update_slice_in_dim(x, y, i, 0) if x.ndim else y, whole, updated
        )

    return jax.lax.fori_loop(0, num_seeds, seed, tree)


def thread_map(pool: ThreadPoolExecutor, function: Callable[[Any], Result], items: Sequence[Any]) -> list[Result]:
    """``function`` of each item, in the pool's threads; a single item is computed at once in this thread."""
    return [function(items[0])] if len(items) == 1 else list(pool.map(function, items))


def thread_pool(name: str) -> ThreadPoolExecutor:
    """A pool with one thread per core of this process; threads start when they are first needed."""
    return ThreadPoolExecutor(num_cores(), name)


def num_cores() -> int:
    """Number of CPU cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # exists on Linux only
        return os.cpu_count() or 1


def prevent_inlining(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` (arrays in, arrays out) as a call that XLA does not inline.

    Takes effect on CPUs alone: elsewhere bitwise agreement is not promised. Nor is it where several
    devices share a program: a fixed layout would give each of them all of the arguments.
    """

    @jax.jit
    def alone(*args: Any) -> Any:
        return function(*jax.tree.map(_row_major, args))

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        if jax.default_backend() != "cpu":
            return function(*args)
        # the attribute is set on the operation that produces the value: the call itself, not its callee
        return jax.tree.map(lambda x: set_xla_metadata(x, inlineable="false"), alone(*args))

    return call


def _row_major(x: Any) -> Any:
    if current_mesh() is not None or jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return x
    return with_layout_constraint(x, Layout(major_to_minor=tuple(range(x.ndim))))
