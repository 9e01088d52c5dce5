"""Benches by name: one module each in this directory, which declares ``BENCH``."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

from thespis.core.errors import UserError
from thespis.evidence.bench import Bench


def bench_names() -> list[str]:
    """Names of all benches, sorted. Nothing is imported."""
    modules = (module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    return sorted(name.replace("_", "-") for name in modules if name != "registry")


def bench_module(name: str) -> ModuleType:
    """Import the module of a bench. Raises :class:`UserError` with the nearest names for an unknown one."""
    if name not in bench_names():
        near = difflib.get_close_matches(name, bench_names(), n=3) or bench_names()
        raise UserError(f"unknown bench {name!r}; did you mean {', '.join(near)}? (thespis bench list)")
    return importlib.import_module(f"thespis.evidence.benches.{name.replace('-', '_')}")


def load_bench(name: str) -> Bench:
    """Load a bench. Raises :class:`UserError` as :func:`bench_module` does."""
    return bench_module(name).BENCH
