"""Answers kept on disk, so that the same requests are answered again without the endpoint."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from thespis.core import disk

_HOUR = 3600.0


class Replay:
    """A directory of responses by request, one file each; several processes may share it.

    A file is written under another name, synced and renamed: a kill leaves it whole or not there. What is nevertheless
    damaged counts as not there.
    """

    def __init__(self, directory: Path | str):
        self.directory = Path(directory)
        with disk.one_line("answers", self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
        for part in self.directory.glob(f"*/.*{disk.PART}"):  # of a process that was killed, unless it is new
            try:
                if time.time() - part.stat().st_mtime > _HOUR:
                    part.unlink()
            except OSError:
                continue  # another process was quicker

    def found(self, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        """The response to a request that was kept."""
        try:
            entry = json.loads(self.path(asked).read_bytes())
            return entry["response"] if entry["asked"] == json.loads(_text(asked)) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep(self, asked: Mapping[str, Any], response: Mapping[str, Any]) -> None:
        """Keep a response. Raises ``UserError`` if the disk refuses."""
        path = self.path(asked)
        with disk.one_line("an answer", self.directory):
            path.parent.mkdir(exist_ok=True)
            with disk.replacing(path, f".{os.getpid()}.{threading.get_ident()}") as file:
                file.write(json.dumps({"asked": asked, "response": response}, ensure_ascii=False).encode())

    def path(self, asked: Mapping[str, Any]) -> Path:
        """The file of a request: the SHA-256 of all of it."""
        name = hashlib.sha256(_text(asked).encode()).hexdigest()
        return self.directory / name[:2] / f"{name}.json"


def _text(asked: Mapping[str, Any]) -> str:
    return json.dumps(asked, sort_keys=True, separators=(",", ":"))
