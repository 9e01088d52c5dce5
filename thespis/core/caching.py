"""Where is kept what can be made again: compiled programs, models that were taught, what runs begin from."""

from __future__ import annotations

import os
from pathlib import Path


def cache(*parts: str) -> Path:
    """A place below ``$XDG_CACHE_HOME/thespis``, or ``~/.cache/thespis``; nothing is made."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home, "thespis", *parts)
