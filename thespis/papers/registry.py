"""Papers by id: one folder each in this directory."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from types import ModuleType

import thespis.papers
from thespis.core.errors import UserError
from thespis.evidence.paper import Paper


def paper_ids() -> list[str]:
    """Ids of all papers, sorted. Nothing is imported."""
    folders = (module.name for module in pkgutil.iter_modules(thespis.papers.__path__) if module.ispkg)
    return sorted(name.replace("_", "-") for name in folders)


def paper_module(paper_id: str) -> ModuleType:
    """Import the module of a paper's declaration. Raises :class:`UserError` with the nearest ids for an unknown one."""
    if paper_id not in paper_ids():
        near = difflib.get_close_matches(paper_id, paper_ids(), n=3) or paper_ids()
        raise UserError(f"unknown paper {paper_id!r}; did you mean {', '.join(near)}? (thespis papers)")
    return importlib.import_module(f"thespis.papers.{paper_id.replace('-', '_')}.paper")


def load_paper(paper_id: str) -> Paper:
    """Load a paper's declaration. Raises :class:`UserError` as :func:`paper_module` does."""
    return paper_module(paper_id).PAPER
