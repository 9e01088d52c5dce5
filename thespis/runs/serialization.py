"""Values in the text files of a run: strict JSON, and CSV in which equal numbers are equal bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from thespis.core.errors import UserError


def to_jsonable(value: Any) -> Any:
    """``value`` as JSON data: arrays and tuples as lists, non-finite numbers as ``None``."""
    match value:
        case dict():
            return {str(name): to_jsonable(item) for name, item in value.items()}
        case list() | tuple():
            return [to_jsonable(item) for item in value]
        case None | bool() | int() | str():
            return value
        case float():
            return float(value) if math.isfinite(value) else None
        case Path():
            return str(value)
    converted = np.asarray(value).tolist()
    if converted is value:
        raise TypeError(f"{value!r} cannot be written as JSON")
    return to_jsonable(converted)


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    value = value if isinstance(value, int | float) else np.asarray(value).item()
    return repr(int(value)) if isinstance(value, int) else repr(float(value))


def csv_line(values: Sequence[Any]) -> bytes:
    """A line of CSV: numbers by ``repr``, ``None`` as an empty cell, strings unchanged."""
    return (",".join(value if isinstance(value, str) else _csv_cell(value) for value in values) + "\n").encode()


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises :class:`UserError` if it cannot be read or is damaged."""
    try:
        return json.loads(path.read_text())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); restore it, or start a new run") from error
