"""Papers by id: one file each in this directory."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from types import ModuleType

import thespis.papers
from thespis.core.errors import UserError
from thespis.evidence.paper import Paper


def ids() -> list[str]:
    """The ids of all papers, sorted. Nothing is imported."""
    files = (module.name for module in pkgutil.iter_modules(thespis.papers.__path__))
    return sorted(name.replace("_", "-") for name in files if name != "registry")


def module_of(id: str) -> ModuleType:
    """The file of a paper's declaration. Raises :class:`UserError` with the nearest ids for an unknown one."""
    if id not in ids():
        near = difflib.get_close_matches(id, ids(), n=3) or ids()
        raise UserError(f"unknown paper {id!r}; did you mean {', '.join(near)}? (thespis papers)")
    return importlib.import_module(f"thespis.papers.{id.replace('-', '_')}")


def load(id: str) -> Paper:
    """A paper's declaration. Raises :class:`UserError` as :func:`module_of` does."""
    return module_of(id).PAPER
