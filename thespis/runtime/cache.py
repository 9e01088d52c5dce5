"""The cache directory: compiled programs, pretrained tiny models, initial data of runs; all of it can be rebuilt."""

from __future__ import annotations

import os
from pathlib import Path


def cache_path(*parts: str) -> Path:
    """A path below ``$XDG_CACHE_HOME/thespis``, or ``~/.cache/thespis``; nothing is created."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home, "thespis", *parts)
