"""Checkpoints: a pytree in one file, written whole or not at all, and never read when damaged.

A file is ``magic | header length | sha256(header) | header | data | sha256(data)``. The header is JSON:
the user's ``meta`` and, for each leaf in path order, its path, kind and either its value (Python numbers
and strings) or the dtype, shape and size of its bytes in ``data``, where each array starts at a multiple
of 64. There is no pickle: loading runs no code. Leaves may be JAX and numpy arrays, typed PRNG keys,
``bool``, ``int``, ``float`` and ``str``; ``None`` and containers are structure; functions are not stored
but taken from ``like`` on loading.

Arrays are hashed and written in pieces straight from where they lie, so that saving a replay buffer
needs no second copy of it on a CPU.
"""

from __future__ import annotations

import ast
import enum
import hashlib
import json
import os
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from thespis.core import disk
from thespis.runs import leaves
from thespis.runs.leaves import CheckpointError, Entry
from thespis.runs.leaves import hash_tree as hash_tree

MAGIC = b"THESPIS\x01"  # the last byte is the version of the format
SUFFIX = ".ckpt"
_HEADER_LIMIT = 1 << 30
_DIGEST = hashlib.sha256().digest_size


class CorruptCheckpoint(CheckpointError):
    """The bytes of this file are not those that were saved; an earlier file may still be good."""


class _Open(enum.Enum):
    OPEN = "open"


OPEN = _Open.OPEN
"""A leaf of ``like`` that stands for a dictionary of numpy arrays, whatever names and shapes were saved."""


class Latest(NamedTuple):
    """What :func:`latest` found; ``warnings`` names each damaged file that was passed over, and why."""

    tree: PyTree
    meta: dict[str, Any]
    path: Path
    warnings: list[str]


def save(path: str | Path, tree: PyTree, meta: dict[str, Any]) -> None:
    """Write ``tree`` and the JSON-able ``meta`` to ``path``; afterwards they are on the disk.

    Whatever happens, a kill or a power cut included, ``path`` holds either what it held before or the
    whole new checkpoint. Raises :class:`CheckpointError` if a leaf cannot be stored or the disk refuses.
    """
    path = Path(path)
    header, blocks = leaves.plan(tree)
    text = json.dumps({"meta": meta} | header, allow_nan=False).encode()
    with disk.one_line(f"checkpoint {path.name}", path.parent, CheckpointError), disk.replacing(path) as file:
        file.write(MAGIC + len(text).to_bytes(8, "little") + hashlib.sha256(text).digest() + text)
        digest = hashlib.sha256()
        for piece in leaves.pieces(blocks):
            digest.update(piece)
            file.write(piece)
        file.write(digest.digest())


def load(path: str | Path, like: PyTree, under: str = "") -> tuple[PyTree, dict[str, Any]]:
    """Read a checkpoint into a tree of the structure of ``like``, and its ``meta``.

    With ``under``, only the part of the stored tree whose leaf paths begin so is kept, and ``like`` is
    that part. Leaves of ``like`` may be arrays, ``jax.ShapeDtypeStruct``, Python values or :data:`OPEN`; JAX
    leaves and structs become JAX arrays on the default device, numpy leaves numpy arrays. Raises
    :class:`CorruptCheckpoint` if the file is damaged, and :class:`CheckpointError` naming the leaf and both
    shapes if it holds another state.
    """
    path = Path(path)
    flat, structure = jax.tree_util.tree_flatten_with_path(like)
    wanted = {under + jax.tree_util.keystr(where): leaf for where, leaf in flat}
    try:
        with open(path, "rb") as file:
            header = _read_header(file, path)
            opened = {where: _inside(header["leaves"], where) for where, leaf in wanted.items() if leaf is OPEN}
            asked = {where: leaf for where, leaf in wanted.items() if leaf is not OPEN}
            asked |= {f"{where}[{name!r}]": leaf for where, inside in opened.items() for name, leaf in inside.items()}
            _match([entry for entry in header["leaves"] if entry["path"].startswith(under)], asked, path)
            values = _read_leaves(file, path, header["leaves"], asked)
    except OSError as error:
        raise CorruptCheckpoint(f"{path} cannot be read: {error.strerror or error}") from error
    for where, inside in opened.items():
        values[where] = {name: values[f"{where}[{name!r}]"] for name in inside}
    return jax.tree_util.tree_unflatten(structure, [values[where] for where in wanted]), header["meta"]


def _inside(entries: list[Entry], where: str) -> dict[str, np.ndarray]:
    """Examples of the arrays stored in the dictionary at ``where``."""
    found = {}
    for entry in entries:
        if entry["path"].startswith(f"{where}["):
            found[ast.literal_eval(entry["path"][len(where) + 1 : -1])] = leaves.empty(entry)
    return found


def latest(directory: str | Path, like: PyTree, under: str = "") -> Latest:
    """The newest undamaged checkpoint of ``directory``, as :func:`load` gives it.

    A damaged file is passed over with a warning. Raises :class:`CheckpointError` if no file is left, or
    if the newest good one holds another state than ``like``.
    """
    warnings: list[str] = []
    for path in reversed(listing(directory)):
        try:
            tree, meta = load(path, like, under)
        except CorruptCheckpoint as error:
            warnings.append(str(error))
            continue
        return Latest(tree, meta, path, warnings)
    if warnings:
        raise CheckpointError(f"no undamaged checkpoint is left: {'; '.join(warnings)}")
    raise CheckpointError(f"{directory} holds no checkpoint")


def listing(directory: str | Path) -> list[Path]:
    """The finished checkpoint files of ``directory``, oldest first."""
    return sorted(Path(directory).glob(f"step_*{SUFFIX}"))


def file_name(step: int) -> str:
    """The file name of the checkpoint at ``step``; names sort as their steps do."""
    return f"step_{step:012d}{SUFFIX}"


def _read_header(file: BinaryIO, path: Path) -> Entry:
    start = file.read(len(MAGIC) + 8 + _DIGEST)
    if len(start) < len(MAGIC) + 8 + _DIGEST or start[: len(MAGIC) - 1] != MAGIC[:-1]:
        raise CorruptCheckpoint(f"{path} is damaged: it does not begin as a checkpoint does")
    if start[len(MAGIC) - 1] != MAGIC[-1]:
        raise CorruptCheckpoint(f"{path} is damaged, or of a newer Thespis: its format is not {MAGIC[-1]}")
    length = int.from_bytes(start[len(MAGIC) : len(MAGIC) + 8], "little")
    text = file.read(length) if length <= _HEADER_LIMIT else b""
    if hashlib.sha256(text).digest() != start[-_DIGEST:]:
        raise CorruptCheckpoint(f"{path} is damaged: its header is not what was written")
    header = json.loads(text)
    if os.fstat(file.fileno()).st_size != file.tell() + header["size"] + _DIGEST:
        raise CorruptCheckpoint(f"{path} is damaged: it is not as long as it should be")
    return header


def _match(entries: list[Entry], wanted: dict[str, Any], path: Path) -> None:
    """Raise, naming the first leaf that differs, unless the file holds what is wanted."""
    stored = {entry["path"]: entry for entry in entries}
    for where, leaf in wanted.items():
        if where not in stored:
            raise CheckpointError(f"{path} holds another state: it lacks {where}")
        have, want = leaves.signature(stored[where]), leaves.signature(leaves.describe(where, leaf))
        if have != want:
            raise CheckpointError(f"{path} holds another state: {where} is {have} there, expected {want}")
    for where in stored:
        if where not in wanted:
            raise CheckpointError(f"{path} holds another state: {where} is not expected")


def _read_leaves(file: BinaryIO, path: Path, entries: list[Entry], wanted: dict[str, Any]) -> dict[str, Any]:
    """The values of the wanted leaves; all bytes are checked, those of the others without being kept."""
    digest = hashlib.sha256()
    values = {}
    scratch = memoryview(bytearray(leaves.PIECE))

    def read(piece: memoryview) -> None:
        if file.readinto(piece) != len(piece):  # type: ignore[attr-defined]
            raise CorruptCheckpoint(f"{path} is damaged: it ends too early")
        digest.update(piece)

    for entry in entries:
        where, size = entry["path"], entry.get("size", 0)
        array = leaves.empty(entry) if where in wanted and "shape" in entry else None
        view = None if array is None else leaves.bytes_of(array)
        for start in range(0, size, leaves.PIECE):
            length = min(leaves.PIECE, size - start)
            read(scratch[:length] if view is None else view[start : start + length])
        read(scratch[: -size % leaves.ALIGN])
        if where in wanted:
            values[where] = leaves.restore(entry, array, wanted[where])
    if file.read(_DIGEST) != digest.digest():
        raise CorruptCheckpoint(f"{path} is damaged: its data are not what was written")
    return values
