"""What a leaf of a pytree is in a checkpoint: an entry of the header and, for arrays, a block of bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from thespis.core.apart import Apart
from thespis.core.errors import UserError
from thespis.core.keys import wrapped

ALIGN = 64
PIECE = 1 << 20  # bytes hashed and written at a time: they stay in the processor's cache in between

Entry = dict[str, Any]
Block = tuple[Any, ...]
"""Arrays of any device, whose bytes follow each other."""


class CheckpointError(UserError):
    """A checkpoint cannot be written, or holds another state, or none can be read."""


def hash_tree(tree: PyTree) -> str:
    """The sha256 (hex) of every leaf's path, dtype, shape and bytes, in path order.

    A numpy array and a JAX array of the same content count as the same.
    """
    header, blocks = plan(tree)
    digest = hashlib.sha256(json.dumps(header).encode())
    for piece in pieces(blocks):
        digest.update(piece)
    return digest.hexdigest()


def describe(path: str, leaf: Any) -> Entry:
    """The entry of one leaf or its ``ShapeDtypeStruct``; :class:`CheckpointError` if it cannot be stored."""
    if _is_key(leaf):
        return {"path": path, "kind": str(leaf.dtype), "shape": list(leaf.shape)}
    if isinstance(leaf, jax.Array | jax.ShapeDtypeStruct | np.ndarray | np.generic | Apart):
        dtype = np.dtype(leaf.dtype)
        if dtype.hasobject or dtype.names:
            raise CheckpointError(f"leaf {path} cannot be stored: its dtype is {dtype}, not plain numbers")
        name = dtype.name if dtype.kind == "V" else dtype.str  # bfloat16 and its kin are of kind V
        return {"path": path, "kind": "array", "shape": list(leaf.shape), "dtype": name}
    if type(leaf) in (bool, int, str):
        return {"path": path, "kind": type(leaf).__name__, "value": leaf}
    if type(leaf) is float:
        return {"path": path, "kind": "float", "value": repr(leaf)}  # JSON knows no infinity
    if callable(leaf):
        return {"path": path, "kind": "function"}
    raise CheckpointError(f"leaf {path} cannot be stored: {type(leaf).__name__} is no array, number or text")


def signature(entry: Entry) -> str:
    """What must agree for one leaf to take another's place: ``float32[3, 4]``, ``key<fry>[2]``, ``int``."""
    kind = np.dtype(entry["dtype"]).name if entry["kind"] == "array" else entry["kind"]
    return f"{kind}{entry['shape']}" if "shape" in entry else kind


def plan(tree: PyTree) -> tuple[Entry, list[Block]]:
    """The header of a tree, without ``meta``, and each block of data, in order."""
    entries, blocks, total = [], [], 0
    for where, leaf in jax.tree_util.tree_leaves_with_path(tree):
        entry = describe(jax.tree_util.keystr(where), leaf)
        entries.append(entry)
        if "shape" not in entry:
            continue
        if _is_key(leaf):
            entry["impl"] = str(jax.random.key_impl(leaf))
            leaf = jax.random.key_data(leaf)
            entry |= {"dtype": leaf.dtype.str, "data_shape": list(leaf.shape)}
        entry["size"] = int(leaf.nbytes)
        total += entry["size"] + -entry["size"] % ALIGN
        blocks.append(leaf.held if isinstance(leaf, Apart) else (leaf,))
    return {"leaves": entries, "size": total}, blocks


def pieces(blocks: list[Block]) -> Iterator[memoryview | bytes]:
    """The data section, piece by piece; an array is fetched from its device when its turn comes."""
    for block in blocks:
        size = 0
        for part in block:
            view = bytes_of(np.ascontiguousarray(np.asarray(part)))
            size += len(view)
            for start in range(0, len(view), PIECE):
                yield view[start : start + PIECE]
        yield bytes(-size % ALIGN)


def empty(entry: Entry) -> np.ndarray:
    """The array that the block of ``entry`` is to be read into."""
    return np.empty(entry.get("data_shape", entry["shape"]), np.dtype(entry["dtype"]))


def bytes_of(array: np.ndarray) -> memoryview:
    """The memory of a contiguous array."""
    return array.reshape(-1).view(np.uint8).data


def restore(entry: Entry, array: np.ndarray | None, like: Any) -> Any:
    """The leaf that ``entry`` and its block stand for, of the kind that ``like`` is."""
    match entry["kind"]:
        case "array":
            if isinstance(like, jax.Array | jax.ShapeDtypeStruct):
                return jnp.array(array)  # a copy: the memory of a numpy array cannot be donated
            return array[()] if isinstance(like, np.generic) else array  # type: ignore[index]
        case "function":
            return like
        case "float":
            return float(entry["value"])
        case "bool" | "int" | "str":
            return entry["value"]
        case _:
            return wrapped(jnp.array(array), like, entry["impl"])


def _is_key(leaf: Any) -> bool:
    arrays = jax.Array | jax.ShapeDtypeStruct
    return isinstance(leaf, arrays) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
