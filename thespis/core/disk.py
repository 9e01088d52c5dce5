"""Writing so that a kill or a full disk leaves the old bytes or the new ones, never a mixture."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from thespis.core.errors import UserError

PART = ".part"
"""Ending of a file that is being written; one that outlived its process may be deleted."""


@contextlib.contextmanager
def replacing(path: Path, writer: str = "") -> Iterator[BinaryIO]:
    """A file that takes the place of ``path``, durably, when the block ends without an error.

    ``writer`` tells apart those who may write the same path at the same time: the last to end wins. Raises ``OSError``
    as the disk does; ``path`` then still holds what it held before.
    """
    part = path.with_name(f".{path.name}{writer}{PART}")
    try:
        with open(part, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:  # an interrupt, too, leaves no half-written file behind
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make renames in ``directory`` outlive a power cut (no-op where directories cannot be opened)."""
    if os.name != "posix":
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_parts(directory: Path) -> None:
    """Delete what a killed process left half-written in ``directory``."""
    for part in directory.glob(f".*{PART}"):
        with contextlib.suppress(OSError):
            part.unlink()


def message(error: OSError, what: str, where: Path) -> str:
    """One line for a disk that refuses: what could not be written, and what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"disk full: cannot write {what} in {where}; free some space (what was saved before is intact)"
    return f"cannot write {what} in {where}: {error.strerror or error}; choose a directory you may write to"


@contextlib.contextmanager
def one_line(what: str, where: Path, kind: type[UserError] = UserError) -> Iterator[None]:
    """Turn an ``OSError`` of the block into a :class:`UserError` of one line."""
    try:
        yield
    except OSError as error:
        raise kind(message(error, what, where)) from error


def sync_file(path: Path) -> None:
    """Make what was written to ``path`` outlive a power cut."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
