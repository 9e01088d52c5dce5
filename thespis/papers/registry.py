"""Papers by id: one folder each in this directory."""

from __future__ import annotations

import pkgutil
from types import ModuleType

import thespis.papers
from thespis.evidence.named_modules import import_named
from thespis.evidence.paper import Paper


def paper_ids() -> list[str]:
    """Ids of all papers, sorted. Nothing is imported."""
    folders = (module.name for module in pkgutil.iter_modules(thespis.papers.__path__) if module.ispkg)
    return sorted(name.replace("_", "-") for name in folders)


def paper_module(paper_id: str) -> ModuleType:
    """Import the module of a paper's declaration. Raises :class:`UserError` with the nearest ids for an unknown one."""
    return import_named("paper", paper_id, paper_ids(), "thespis.papers.{}.paper", "thespis papers")


def load_paper(paper_id: str) -> Paper:
    """Load a paper's declaration. Raises :class:`UserError` as :func:`paper_module` does."""
    return paper_module(paper_id).PAPER
