"""The cache directory: compiled programs, pretrained tiny models, initial data of runs; all of it can be rebuilt."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def cache_path(*parts: str) -> Path:
    """A path below ``$XDG_CACHE_HOME/thespis``, or ``~/.cache/thespis``; nothing is created."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home, "thespis", *parts)


def write_once(directory: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a directory of the cache, unless it exists; a reader never sees half of it."""
    if directory.exists():
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as temporary:
        content = Path(temporary) / "content"
        content.mkdir()
        write(content)
        with contextlib.suppress(OSError):  # another process has already written it
            content.rename(directory)
