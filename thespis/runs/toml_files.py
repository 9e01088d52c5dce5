"""TOML files of users: reading, and tables of settings by dotted name."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from thespis.core.errors import UserError

SUFFIX = ".toml"


def read_toml(path: str | Path, kind: str) -> dict[str, Any]:
    """The content of a file; ``kind`` says in errors what it is. Raises :class:`UserError` if it cannot be read."""
    try:
        return tomllib.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{kind} file {path} cannot be read: {error}") from error


def flatten_table(
    table: dict[str, Any], prefix: str = "", is_value: Callable[[dict[str, Any]], bool] = lambda table: False
) -> dict[str, Any]:
    """Values by dotted name, which TOML reads as nested tables; ``is_value`` says which tables are values."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        is_table = isinstance(value, dict) and not is_value(value)
        flat |= flatten_table(value, f"{prefix}{name}.", is_value) if is_table else {prefix + name: value}
    return flat


def setting_text(name: str, value: Any) -> str:
    """A setting as text, ``name=value``; a list is written with commas."""
    return f"{name}={','.join(map(str, value)) if isinstance(value, list | tuple) else value}"
