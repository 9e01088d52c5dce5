"""Atomic writes: after a kill or on a full disk a file has its old content or the new one, never a mixture."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from thespis.core.errors import UserError

PARTIAL_SUFFIX = ".part"
"""Suffix of a file that is being written; a file that a killed process left may be deleted."""


@contextlib.contextmanager
def atomic_write(path: Path, writer: str = "") -> Iterator[BinaryIO]:
    """Open a file that replaces ``path`` atomically and durably when the block ends without an error.

    ``writer`` distinguishes processes that may write the same path at the same time: the last to finish wins. Raises
    ``OSError`` as the disk does; ``path`` then still has its old content.
    """
    part = path.with_name(f".{path.name}{writer}{PARTIAL_SUFFIX}")
    try:
        with open(part, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:  # an interrupt must not leave a partial file either
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    fsync_directory(path.parent)


def fsync_directory(directory: Path) -> None:
    """Make renames in ``directory`` survive a power cut (no-op where directories cannot be opened)."""
    if os.name != "posix":
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_partial_files(directory: Path) -> None:
    """Delete the partial files of killed processes in ``directory``."""
    for part in directory.glob(f".*{PARTIAL_SUFFIX}"):
        with contextlib.suppress(OSError):
            part.unlink()


def disk_error_message(error: OSError, what: str, directory: Path) -> str:
    """A one-line message for a write error: what could not be written, and what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"disk full: cannot write {what} in {directory}; free some space (what was saved before is intact)"
    return f"cannot write {what} in {directory}: {error.strerror or error}; choose a directory you may write to"


@contextlib.contextmanager
def as_user_error(what: str, directory: Path, error_type: type[UserError] = UserError) -> Iterator[None]:
    """Turn an ``OSError`` in the block into a :class:`UserError` of one line."""
    try:
        yield
    except OSError as error:
        raise error_type(disk_error_message(error, what, directory)) from error


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Append lines to a file, and return when they would survive a power cut."""
    with open(path, "ab") as file:
        file.write("".join(f"{line}\n" for line in lines).encode())
        file.flush()
        os.fsync(file.fileno())


def read_whole_lines(path: Path) -> list[str]:
    """The lines of a file that grows; a last one that a crash cut off is removed from the file."""
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        with open(path, "rb+") as file:
            file.truncate(len(whole))
    return whole.decode("utf-8", "replace").splitlines()


def fsync_file(path: Path) -> None:
    """Make the content of ``path`` survive a power cut."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
