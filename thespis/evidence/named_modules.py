"""Modules that declare a paper or a bench, found by name."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Sequence
from types import ModuleType

from thespis.core.errors import UserError


def import_named(kind: str, name: str, names: Sequence[str], path: str, command: str) -> ModuleType:
    """Import the module at ``path``, in which ``{}`` stands for the name with underscores.

    Raises :class:`UserError` for a name that is not among ``names``, with the nearest ones; ``command`` lists them all.
    """
    if name not in names:
        near = difflib.get_close_matches(name, names, n=3) or names
        raise UserError(f"unknown {kind} {name!r}; did you mean {', '.join(near)}? ({command})")
    return importlib.import_module(path.format(name.replace("-", "_")))
