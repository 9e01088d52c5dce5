"""Benches by name: one module each in this directory, which declares ``BENCH``."""

from __future__ import annotations

import pkgutil
from pathlib import Path
from types import ModuleType

from thespis.evidence.bench import Bench
from thespis.evidence.named_modules import import_named


def bench_names() -> list[str]:
    """Names of all benches, sorted. Nothing is imported."""
    modules = (module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    return sorted(name.replace("_", "-") for name in modules if name != "registry")


def bench_module(name: str) -> ModuleType:
    """Import the module of a bench. Raises :class:`UserError` with the nearest names for an unknown one."""
    return import_named("bench", name, bench_names(), "thespis.evidence.benches.{}", "thespis bench list")


def load_bench(name: str) -> Bench:
    """Load a bench. Raises :class:`UserError` as :func:`bench_module` does."""
    return bench_module(name).BENCH
