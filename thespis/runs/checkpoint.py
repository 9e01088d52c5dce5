"""Checkpoints: a pytree in one file, written atomically and verified by hashes when read.

A file is ``magic | header length | sha256(header) | header | data | sha256(data)``. The header is JSON:
the user's ``meta`` and, for each leaf in path order, its path, kind and either its value (Python numbers
and strings) or the dtype, shape and size of its bytes in ``data``, where each array starts at a multiple
of 64. There is no pickle: loading runs no code. Leaves may be JAX and numpy arrays, typed PRNG keys,
``bool``, ``int``, ``float`` and ``str``; ``None`` and containers are structure; functions are not stored
but taken from ``like`` on loading.

Arrays are hashed and written in pieces straight from their memory, so that saving a replay buffer
needs no second copy of it on a CPU.
"""

from __future__ import annotations

import ast
import contextlib
import enum
import hashlib
import json
import os
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from thespis.core import renames
from thespis.core.errors import UserError
from thespis.runtime import disk
from thespis.runtime.keys import wrap_key_data
from thespis.runtime.vmap_exact import PerSeedArray

ALIGNMENT = 64
CHUNK_BYTES = 1 << 20  # bytes hashed and written at a time: small enough to stay in the processor's cache

LeafEntry = dict[str, Any]
LeafBuffers = tuple[Any, ...]
"""Arrays on any device, whose bytes follow each other."""


class CheckpointError(UserError):
    """A checkpoint cannot be written or read, or holds another state."""


def hash_tree(tree: PyTree) -> str:
    """The sha256 (hex) of every leaf's path, dtype, shape and bytes, in path order.

    A numpy array and a JAX array with the same content give the same hash.
    """
    header, blocks = build_header(tree)
    digest = hashlib.sha256(json.dumps(header).encode())
    for piece in iter_bytes(blocks):
        digest.update(piece)
    return digest.hexdigest()


def describe_leaf(path: str, leaf: Any) -> LeafEntry:
    """The header entry of a leaf or ``ShapeDtypeStruct``; :class:`CheckpointError` if it cannot be stored."""
    if _is_key(leaf):
        return {"path": path, "kind": str(leaf.dtype), "shape": list(leaf.shape)}
    if isinstance(leaf, jax.Array | jax.ShapeDtypeStruct | np.ndarray | np.generic | PerSeedArray):
        dtype = np.dtype(leaf.dtype)
        if dtype.hasobject or dtype.names:
            raise CheckpointError(f"leaf {path} cannot be stored: its dtype is {dtype}, not plain numbers")
        name = dtype.name if dtype.kind == "V" else dtype.str  # bfloat16 and similar dtypes have kind V
        return {"path": path, "kind": "array", "shape": list(leaf.shape), "dtype": name}
    if type(leaf) in (bool, int, str):
        return {"path": path, "kind": type(leaf).__name__, "value": leaf}
    if type(leaf) is float:
        return {"path": path, "kind": "float", "value": repr(leaf)}  # JSON has no infinity
    if callable(leaf):
        return {"path": path, "kind": "function"}
    raise CheckpointError(f"leaf {path} cannot be stored: {type(leaf).__name__} is no array, number or text")


def leaf_signature(entry: LeafEntry) -> str:
    """What must agree for one leaf to replace another: ``float32[3, 4]``, ``key<fry>[2]``, ``int``."""
    kind = np.dtype(entry["dtype"]).name if entry["kind"] == "array" else entry["kind"]
    return f"{kind}{entry['shape']}" if "shape" in entry else kind


def build_header(tree: PyTree) -> tuple[LeafEntry, list[LeafBuffers]]:
    """The header of a tree, without ``meta``, and the blocks of data, in order."""
    entries, blocks, total = [], [], 0
    for where, leaf in jax.tree_util.tree_leaves_with_path(tree):
        entry = describe_leaf(jax.tree_util.keystr(where), leaf)
        entries.append(entry)
        if "shape" not in entry:
            continue
        if _is_key(leaf):
            entry["impl"] = str(jax.random.key_impl(leaf))
            leaf = jax.random.key_data(leaf)
            entry |= {"dtype": leaf.dtype.str, "data_shape": list(leaf.shape)}
        entry["size"] = int(leaf.nbytes)
        total += entry["size"] + -entry["size"] % ALIGNMENT
        blocks.append(leaf.buffers if isinstance(leaf, PerSeedArray) else (leaf,))
    return {"leaves": entries, "size": total}, blocks


def iter_bytes(blocks: list[LeafBuffers]) -> Iterator[memoryview | bytes]:
    """The data section in chunks; each array is fetched from its device when it is reached."""
    for block in blocks:
        size = 0
        for part in block:
            view = array_bytes(np.ascontiguousarray(np.asarray(part)))
            size += len(view)
            for start in range(0, len(view), CHUNK_BYTES):
                yield view[start : start + CHUNK_BYTES]
        yield bytes(-size % ALIGNMENT)


def empty_array(entry: LeafEntry) -> np.ndarray:
    """An uninitialized array to read the block of ``entry`` into."""
    return np.empty(entry.get("data_shape", entry["shape"]), np.dtype(entry["dtype"]))


def array_bytes(array: np.ndarray) -> memoryview:
    """The memory of a contiguous array."""
    return array.reshape(-1).view(np.uint8).data


def restore_leaf(entry: LeafEntry, array: np.ndarray | None, like: Any) -> Any:
    """The leaf from ``entry`` and its block, of the same type as ``like``."""
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
            return wrap_key_data(jnp.array(array), like, entry["impl"])


def _is_key(leaf: Any) -> bool:
    arrays = jax.Array | jax.ShapeDtypeStruct
    return isinstance(leaf, arrays) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


MAGIC = b"THESPIS\x01"  # the last byte is the version of the format
SUFFIX = ".ckpt"
_HEADER_LIMIT = 1 << 30
_DIGEST = hashlib.sha256().digest_size


class CorruptCheckpointError(CheckpointError):
    """The file's bytes are not those that were saved; an earlier checkpoint may still be intact."""


class _AnyArrays(enum.Enum):
    OPEN = "open"


ANY_ARRAYS = _AnyArrays.OPEN
"""A leaf of ``like`` that stands for a dictionary of numpy arrays with any names and shapes."""


class LoadedCheckpoint(NamedTuple):
    """The result of :func:`load_latest`; ``warnings`` names each damaged file that was skipped, and why."""

    tree: PyTree
    meta: dict[str, Any]
    path: Path
    warnings: list[str]


def save(path: str | Path, tree: PyTree, meta: dict[str, Any]) -> None:
    """Write ``tree`` and the JSON-able ``meta`` to ``path``, durably.

    Even after a kill or a power cut, ``path`` has either its old content or the whole new
    checkpoint. Raises :class:`CheckpointError` if a leaf cannot be stored or the disk refuses.
    """
    header, blocks = build_header(tree)
    _write(Path(path), {"meta": meta} | header, blocks)


def _write(path: Path, header: dict[str, Any], blocks: list[LeafBuffers]) -> None:
    text = json.dumps(header, allow_nan=False).encode()
    with disk.as_user_error(f"checkpoint {path.name}", path.parent, CheckpointError), disk.atomic_write(path) as file:
        file.write(MAGIC + len(text).to_bytes(8, "little") + hashlib.sha256(text).digest() + text)
        digest = hashlib.sha256()
        for piece in iter_bytes(blocks):
            digest.update(piece)
            file.write(piece)
        file.write(digest.digest())


def load(
    path: str | Path, like: PyTree, prefix: str = "", padded: str = "", ignored: str = ""
) -> tuple[PyTree, dict[str, Any]]:
    """Read a checkpoint into a tree with the structure of ``like``, and its ``meta``.

    With ``prefix``, only the part of the stored tree below that path is read, and ``like`` is that part. Leaves of
    ``like`` may be arrays, ``jax.ShapeDtypeStruct``, Python values or :data:`ANY_ARRAYS`; JAX leaves and structs become
    JAX arrays on the default device, numpy leaves numpy arrays. Arrays whose path contains ``padded`` may be shorter in
    the file along their second axis: zeros are appended. Leaves of the file whose path contains ``ignored`` need not be
    in ``like``. Raises
    :class:`CorruptCheckpointError` if the file is damaged, and :class:`CheckpointError` naming the leaf and both
    shapes if it holds another state.
    """
    path = Path(path)
    flat, structure = jax.tree_util.tree_flatten_with_path(like)
    wanted = {prefix + jax.tree_util.keystr(where): leaf for where, leaf in flat}
    try:
        with open(path, "rb") as file:
            header = _read_header(file, path)
            stored = [entry["path"] for entry in header["leaves"]]
            for entry, current_path in zip(header["leaves"], renames.renamed_paths(stored, list(wanted)), strict=True):
                entry["path"] = current_path
            dictionaries = {
                where: _dict_entries(header["leaves"], where) for where, leaf in wanted.items() if leaf is ANY_ARRAYS
            }
            expected = {where: leaf for where, leaf in wanted.items() if leaf is not ANY_ARRAYS}
            expected |= {
                f"{where}[{name!r}]": leaf for where, arrays in dictionaries.items() for name, leaf in arrays.items()
            }
            relevant = [entry for entry in header["leaves"] if is_below(entry["path"], prefix)]
            relevant = [entry for entry in relevant if not ignored or ignored not in entry["path"]]
            _check_match(relevant, expected, path, padded)
            values = _read_leaves(file, path, header["leaves"], expected)
    except OSError as error:
        raise CorruptCheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    for where, arrays in dictionaries.items():
        values[where] = {name: values[f"{where}[{name!r}]"] for name in arrays}
    return jax.tree_util.tree_unflatten(structure, [values[where] for where in wanted]), header["meta"]


def keep_part(path: str | Path, prefix: str) -> None:
    """Rewrite a checkpoint with the leaves below ``prefix`` alone; :func:`load` reads them with the same prefix.

    Raises :class:`CorruptCheckpointError`, and leaves the file as it is, if it is damaged.
    """
    path = Path(path)
    with open(path, "rb") as file:
        header = _read_header(file, path)
        kept = [entry for entry in header["leaves"] if is_below(entry["path"], prefix)]
        arrays = _read_arrays(file, path, header["leaves"], {entry["path"] for entry in kept})
    size = sum(entry["size"] + -entry["size"] % ALIGNMENT for entry in kept if "shape" in entry)
    smaller = header | {"leaves": kept, "size": size, "meta": header["meta"] | {"part": prefix}}
    _write(path, smaller, [(arrays[entry["path"]],) for entry in kept if "shape" in entry])


def is_below(path: str, prefix: str) -> bool:
    """Whether a leaf's path is that of a node, or of a leaf below it: ``.a.b`` lies below ``.a``, ``.ab`` does not."""
    return path.startswith(prefix) and path[len(prefix) :][:1] in ("", ".", "[")


def _dict_entries(entries: list[LeafEntry], where: str) -> dict[str, np.ndarray]:
    """Empty arrays like those stored in the dictionary at ``where``."""
    examples = {}
    for entry in entries:
        if entry["path"].startswith(f"{where}["):
            examples[ast.literal_eval(entry["path"][len(where) + 1 : -1])] = empty_array(entry)
    return examples


def read_meta(path: str | Path) -> dict[str, Any]:
    """The ``meta`` of a checkpoint; its data are not read. Raises :class:`CorruptCheckpointError` if it is damaged."""
    path = Path(path)
    try:
        with open(path, "rb") as file:
            return _read_header(file, path)["meta"]
    except OSError as error:
        raise CorruptCheckpointError(f"{path} cannot be read: {error.strerror or error}") from error


def read_entries(directory: str | Path) -> list[LeafEntry]:
    """The entries of all leaves in the newest checkpoint of ``directory`` whose header is undamaged; none without one.

    Their data are not read.
    """
    for path in reversed(list_checkpoints(directory)):
        with contextlib.suppress(OSError, CorruptCheckpointError), open(path, "rb") as file:
            return _read_header(file, path)["leaves"]
    return []


def load_latest(
    directory: str | Path, like: PyTree, prefix: str = "", padded: str = "", ignored: str = ""
) -> LoadedCheckpoint:
    """The newest undamaged checkpoint in ``directory``, read as by :func:`load`.

    Damaged files are skipped with a warning. Raises :class:`CheckpointError` if no file is left, or
    if the newest good one holds another state than ``like``.
    """
    warnings: list[str] = []
    for path in reversed(list_checkpoints(directory)):
        try:
            tree, meta = load(path, like, prefix, padded, ignored)
        except CorruptCheckpointError as error:
            warnings.append(str(error))
            continue
        return LoadedCheckpoint(tree, meta, path, warnings)
    if warnings:
        raise CheckpointError(f"no undamaged checkpoint is left: {'; '.join(warnings)}")
    raise CheckpointError(f"{directory} holds no checkpoint")


def damaged_checkpoints(directory: str | Path) -> list[str]:
    """What is wrong with each checkpoint in ``directory`` that is newer than the newest undamaged one.

    Reads the whole files, and needs no structure to read them into.
    """
    messages: list[str] = []
    for path in reversed(list_checkpoints(directory)):
        try:
            with open(path, "rb") as file:
                _read_leaves(file, path, _read_header(file, path)["leaves"], {})
            break
        except OSError as error:
            messages.append(f"{path} cannot be read: {error.strerror or error}")
        except CorruptCheckpointError as error:
            messages.append(str(error))
    return messages


def list_checkpoints(directory: str | Path) -> list[Path]:
    """The complete checkpoint files in ``directory``, oldest first."""
    return sorted(Path(directory).glob(f"step_*{SUFFIX}"))


def checkpoint_name(step: int) -> str:
    """The file name of the checkpoint at ``step``; names sort by step."""
    return f"step_{step:012d}{SUFFIX}"


def checkpoint_step(path: Path) -> int:
    """The step in a checkpoint's file name."""
    return int(path.name.removeprefix("step_").removesuffix(SUFFIX))


def _read_header(file: BinaryIO, path: Path) -> LeafEntry:
    start = file.read(len(MAGIC) + 8 + _DIGEST)
    if len(start) < len(MAGIC) + 8 + _DIGEST or start[: len(MAGIC) - 1] != MAGIC[:-1]:
        raise CorruptCheckpointError(f"{path} is damaged: it does not begin as a checkpoint does")
    if start[len(MAGIC) - 1] != MAGIC[-1]:
        raise CorruptCheckpointError(f"{path} is damaged, or of a newer Thespis: its format is not {MAGIC[-1]}")
    length = int.from_bytes(start[len(MAGIC) : len(MAGIC) + 8], "little")
    text = file.read(length) if length <= _HEADER_LIMIT else b""
    if hashlib.sha256(text).digest() != start[-_DIGEST:]:
        raise CorruptCheckpointError(f"{path} is damaged: its header is not what was written")
    header = json.loads(text)
    if os.fstat(file.fileno()).st_size != file.tell() + header["size"] + _DIGEST:
        raise CorruptCheckpointError(f"{path} is damaged: it is not as long as it should be")
    return header


def _check_match(entries: list[LeafEntry], wanted: dict[str, Any], path: Path, padded: str) -> None:
    """Raise, naming the first differing leaf, unless the file's leaves match ``wanted``."""
    stored = {entry["path"]: entry for entry in entries}
    for where, leaf in wanted.items():
        if where not in stored:
            raise CheckpointError(f"{path} holds another state: it lacks {where}")
        stored_signature, expected_signature = (
            leaf_signature(stored[where]),
            leaf_signature(describe_leaf(where, leaf)),
        )
        can_be_padded = padded and padded in where and _is_shorter(stored[where], describe_leaf(where, leaf))
        if stored_signature != expected_signature and not can_be_padded:
            raise CheckpointError(
                f"{path} holds another state: {where} is {stored_signature} there, expected {expected_signature}"
            )
    for where in stored:
        if where not in wanted:
            raise CheckpointError(f"{path} holds another state: {where} is not expected")


def _is_shorter(entry: LeafEntry, expected: LeafEntry) -> bool:
    """Whether the array of ``entry`` fits ``expected`` once rows are appended along its second axis."""
    if entry["kind"] != "array" or entry.get("dtype") != expected.get("dtype") or len(entry["shape"]) < 2:
        return False
    shape = entry["shape"][:1] + expected["shape"][1:2] + entry["shape"][2:]
    return shape == expected["shape"] and entry["shape"][1] < shape[1]


def _append_rows(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The array with zeros appended up to ``shape``; itself if nothing is missing."""
    missing = [(0, after - before) for before, after in zip(array.shape, shape, strict=True)]
    return np.pad(array, missing) if any(after for _, after in missing) else array


def _read_leaves(file: BinaryIO, path: Path, entries: list[LeafEntry], wanted: dict[str, Any]) -> dict[str, Any]:
    """The values of the wanted leaves."""
    arrays, values = _read_arrays(file, path, entries, wanted), {}
    for entry in entries:
        if (where := entry["path"]) in wanted:
            array = arrays.pop(where, None)  # which frees it once it is copied to its device
            if array is not None and entry["kind"] == "array":
                array = _append_rows(array, np.shape(wanted[where]))
            values[where] = restore_leaf(entry, array, wanted[where])
    return values


def _read_arrays(file: BinaryIO, path: Path, entries: list[LeafEntry], wanted: Container[str]) -> dict[str, np.ndarray]:
    """The blocks of the wanted leaves; the hash covers all bytes, but other leaves are not kept."""
    digest = hashlib.sha256()
    arrays = {}
    scratch = memoryview(bytearray(CHUNK_BYTES))

    def read(piece: memoryview) -> None:
        if file.readinto(piece) != len(piece):  # type: ignore[attr-defined]
            raise CorruptCheckpointError(f"{path} is damaged: it ends too early")
        digest.update(piece)

    for entry in entries:
        where, size = entry["path"], entry.get("size", 0)
        array = empty_array(entry) if where in wanted and "shape" in entry else None
        view = None if array is None else array_bytes(array)
        for start in range(0, size, CHUNK_BYTES):
            length = min(CHUNK_BYTES, size - start)
            read(scratch[:length] if view is None else view[start : start + length])
        read(scratch[: -size % ALIGNMENT])
        if array is not None:
            arrays[where] = array
    if file.read(_DIGEST) != digest.digest():
        raise CorruptCheckpointError(f"{path} is damaged: its data are not what was written")
    return arrays
