"""Tables that the library ``datasets`` of Hugging Face saved on disk (``save_to_disk``): Arrow streams and a JSON file.

The library itself is not needed, only pyarrow. Nothing is downloaded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from thespis.core.errors import UserError, missing_extra

STATE_FILE, SPLITS_FILE = "state.json", "dataset_dict.json"
"""Files that mark a saved table, and a directory of several splits."""


def is_saved_table(directory: Path) -> bool:
    """Whether ``save_to_disk`` wrote this directory."""
    return any((directory / name).exists() for name in (STATE_FILE, SPLITS_FILE))


def read_saved_table(directory: Path) -> Any:
    """The table in a directory that ``save_to_disk`` wrote, a ``pyarrow.Table``; of several splits, ``train``.

    Raises :class:`UserError` if it cannot be read, is a selection of rows, or has no split ``train``.
    """
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError as error:
        raise missing_extra("pyarrow", "data") from error
    try:
        if (directory / SPLITS_FILE).exists():
            splits = json.loads((directory / SPLITS_FILE).read_text())["splits"]
            if "train" not in splits:
                raise UserError(f"{directory} has no split train: give the directory of one of {', '.join(splits)}")
            directory = directory / "train"
        state = json.loads((directory / STATE_FILE).read_text())
        if state.get("_indices_data_files"):
            raise UserError(f"{directory} has a selection of rows: call flatten_indices() before save_to_disk()")
        tables = []
        for file in state["_data_files"]:
            with pyarrow.memory_map(str(directory / file["filename"])) as source:
                tables.append(pyarrow.ipc.open_stream(source).read_all())
        return pyarrow.concat_tables(tables)
    except (OSError, ValueError, KeyError, TypeError, pyarrow.ArrowException) as error:
        raise UserError(f"cannot read {directory}: {type(error).__name__}: {error}") from error
