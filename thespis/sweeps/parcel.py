"""A run directory as arrays of bytes, which Ray carries from one machine to another, and back as a directory."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from thespis.core import disk
from thespis.runs import checkpoint

Parcel = dict[str, UInt8[np.ndarray, " bytes"]]
"""The files of a directory by their relative paths."""


def pack(directory: Path) -> Parcel:
    """All files of a run but its lock, its older checkpoints and what is half-written: the newest one is enough to
    evaluate and to resume.

    Files are mapped, not read: they need no memory before they are sent, and may be deleted meanwhile.
    """
    older = set(checkpoint.listing(directory / "checkpoints")[:-1])
    found = [path for path in sorted(directory.rglob("*")) if path.is_file() and not path.is_symlink()]
    kept = [path for path in found if path not in older and path.name != ".lock" and path.suffix != disk.PART]
    return {path.relative_to(directory).as_posix(): _mapped(path) for path in kept}


def _mapped(path: Path) -> UInt8[np.ndarray, " bytes"]:
    if path.stat().st_size == 0:
        return np.zeros(0, np.uint8)
    return np.memmap(path, np.uint8, "r")


def unpack(parcel: Parcel, directory: Path) -> None:
    """Write the files into ``directory``, which takes its name only when all of them are on the disk.

    What was there before is replaced. Raises :class:`UserError` if the disk refuses.
    """
    part, before = (directory.with_name(f".{directory.name}{ending}") for ending in (disk.PART, ".before"))
    with disk.one_line("a finished run", directory.parent):
        for rest in (part, before):
            shutil.rmtree(rest, ignore_errors=True)
        for name, content in parcel.items():
            path = part / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with disk.replacing(path) as file:
                file.write(np.ascontiguousarray(content).data)
        if directory.exists():
            os.replace(directory, before)
        os.replace(part, directory)
        disk.sync_directory(directory.parent)
        shutil.rmtree(before, ignore_errors=True)
