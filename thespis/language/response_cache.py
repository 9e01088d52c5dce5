"""On-disk cache of responses, so that repeated requests are answered without calling the endpoint."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from thespis.runtime import disk

_STALE_SECONDS = 3600.0


class ResponseCache:
    """A directory of responses by request, one file each; several processes may share it.

    A file is written under another name, synced and renamed: after a kill it is complete or absent. A damaged file
    counts as absent.
    """

    def __init__(self, directory: Path | str):
        self.directory = Path(directory)
        with disk.as_user_error("answers", self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
        for part in self.directory.glob(f"*/.*{disk.PARTIAL_SUFFIX}"):  # left by a killed process, unless it is recent
            try:
                if time.time() - part.stat().st_mtime > _STALE_SECONDS:
                    part.unlink()
            except OSError:
                continue  # another process was quicker

    def get(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """The stored response to a request, or ``None``."""
        try:
            entry = json.loads(self.entry_path(request).read_bytes())
            return entry["response"] if entry["asked"] == json.loads(_canonical_json(request)) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, request: Mapping[str, Any], response: Mapping[str, Any]) -> None:
        """Store a response. Raises ``UserError`` if writing fails."""
        path = self.entry_path(request)
        with disk.as_user_error("an answer", self.directory):
            path.parent.mkdir(exist_ok=True)
            with disk.atomic_write(path, f".{os.getpid()}.{threading.get_ident()}") as file:
                file.write(json.dumps({"asked": request, "response": response}, ensure_ascii=False).encode())

    def entry_path(self, request: Mapping[str, Any]) -> Path:
        """The file of a request, named by the SHA-256 of its canonical JSON."""
        name = hashlib.sha256(_canonical_json(request).encode()).hexdigest()
        return self.directory / name[:2] / f"{name}.json"


def _canonical_json(request: Mapping[str, Any]) -> str:
    return json.dumps(request, sort_keys=True, separators=(",", ":"))
