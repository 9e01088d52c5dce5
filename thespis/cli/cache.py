"""Results that depend only on the package's files, kept in the cache directory until one of the files changes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from thespis.runtime.cache import cache_path

_PACKAGE = Path(__file__).parents[1]


def package_digest(package: Path = _PACKAGE) -> str:
    """Hash of paths, sizes and modification times of a package's Python files, and of the Python version."""
    digest = hashlib.sha256(sys.version.encode())
    for folder, _, names in sorted(os.walk(package)):
        for name in sorted(name for name in names if name.endswith(".py")):
            path = os.path.join(folder, name)
            state = os.stat(path)
            digest.update(f"{path} {state.st_size} {state.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def load_or_compute(name: str, compute: Callable[[], Any]) -> Any:
    """JSON-able data by ``compute``, or what it returned before if no file of the package has changed since.

    A cache that cannot be read or written is no error: the data are computed.
    """
    path, digest = cache_path("cli", f"{name}.json"), package_digest()
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        stored = json.loads(path.read_text())
        if stored["digest"] == digest:
            return stored["value"]
    value = compute()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps({"digest": digest, "value": value}))
        part.replace(path)
    return value
