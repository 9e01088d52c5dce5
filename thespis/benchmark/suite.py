"""Suites of standard benchmarks, read from TOML files: cells of a method on an environment, with published results.

A file has ``title``, ``text`` and a table per cell::

    [[cell]]
    method = "ppo"
    env = "CartPole-v1"
    seeds = 10
    published = {mean = 500.0, std = 0.0, source = "zoo"}

    [sources]
    zoo = "RL Zoo, benchmark.md"

``steps`` and ``preset`` may be given; otherwise they are those of the preset for this method and environment.
``play`` is the evaluation that is compared, ``greedy`` (the default) or ``sampled``; ``episodes`` is the number of
episodes per seed and evaluation. ``published.env`` is the environment of the source, where its name is another. A cell
without ``published`` is there for a comparison of two methods at equal steps, seed by seed::

    [[comparison]]
    method = "crossq"
    baseline = "sac"
    env = "Hopper-v5"
"""

from __future__ import annotations

import dataclasses
import fnmatch
import tomllib
from pathlib import Path
from typing import Any

from thespis.core.errors import UserError

FILES = Path(__file__).parent / "suites"


@dataclasses.dataclass(frozen=True)
class PublishedResult:
    """A result that others have published. ``std`` is over whatever the source says."""

    mean: float
    source: str
    std: float | None = None
    env: str | None = None
    """The environment's name in the source, where it is another one."""
    steps: int | None = None
    """Training steps in the source, where they are others."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One entry of a suite: a method that is trained on an environment with several seeds."""

    method: str
    env: str
    seeds: int
    published: PublishedResult | None = None
    preset: str = "auto"
    steps: int | None = None
    play: str = "greedy"
    episodes: int = 20
    note: str = ""
    """What the page says below the table: why a published result is not reached, and what was tried."""

    @property
    def env_name(self) -> str:
        """The environment's name without its library."""
        return self.env.rpartition(":")[2]

    @property
    def name(self) -> str:
        """Name of the cell on the command line: ``METHOD/ENV``."""
        return f"{self.method}/{self.env_name}"

    @property
    def file_name(self) -> str:
        """Name of the cell's result, without the ending."""
        return f"{self.method}-{self.env_name}"


@dataclasses.dataclass(frozen=True)
class MethodComparison:
    """Two methods of a suite on one environment, compared at the last number of steps at which both were evaluated."""

    method: str
    baseline: str
    env: str
    """The environment's name without its library."""


@dataclasses.dataclass(frozen=True)
class Suite:
    """A standard benchmark: its cells, in the order in which they are trained, and comparisons of two of them."""

    name: str
    title: str
    text: str
    cells: tuple[Cell, ...]
    sources: dict[str, str]
    comparisons: tuple[MethodComparison, ...] = ()

    def compared_cells(self, comparison: MethodComparison) -> tuple[Cell, Cell]:
        """The cells of the method and of its baseline. Raises :class:`KeyError` where the suite lacks one of them."""
        cells = {(cell.method, cell.env_name): cell for cell in self.cells}
        return cells[comparison.method, comparison.env], cells[comparison.baseline, comparison.env]

    def select(self, patterns: list[str]) -> list[Cell]:
        """The cells whose ``METHOD/ENV`` matches one of the patterns; all of them without a pattern.

        Raises :class:`UserError` for a pattern that no cell matches.
        """
        chosen = {cell.name for cell in self.cells} if not patterns else set()
        for pattern in patterns:
            matches = [cell.name for cell in self.cells if fnmatch.fnmatch(cell.name, pattern)]
            if not matches:
                raise UserError(f"suite {self.name} has no cell {pattern}: thespis benchmark {self.name} --list")
            chosen |= set(matches)
        return [cell for cell in self.cells if cell.name in chosen]


def suite_names() -> list[str]:
    """Names of all suites."""
    return sorted(path.stem for path in FILES.glob("*.toml"))


def load_suite(name: str) -> Suite:
    """The suite called ``name``. Raises :class:`UserError` for an unknown one."""
    if name not in suite_names():
        raise UserError(f"unknown suite {name!r}: it is one of {', '.join(suite_names())}")
    return read_suite(FILES / f"{name}.toml")


def read_suite(path: Path) -> Suite:
    """The suite in a file."""
    content = tomllib.loads(path.read_text())
    cells = tuple(_read_cell(table) for table in content["cell"])
    comparisons = tuple(MethodComparison(**table) for table in content.get("comparison", ()))
    suite = Suite(path.stem, content["title"], content["text"], cells, content["sources"], comparisons)
    if unknown := {cell.published.source for cell in cells if cell.published} - set(suite.sources):
        raise ValueError(f"{path} has no source {unknown}")
    names = [cell.name for cell in cells]
    if len(set(names)) < len(names):
        raise ValueError(f"{path} has a cell twice")
    compared = {f"{method}/{pair.env}" for pair in comparisons for method in (pair.method, pair.baseline)}
    if missing := sorted(compared - set(names)):
        raise ValueError(f"{path} compares {missing[0]}, which is none of its cells")
    return suite


def _read_cell(table: dict[str, Any]) -> Cell:
    values: dict[str, Any] = dict(table)
    if "published" in values:
        values["published"] = PublishedResult(**values["published"])
    return Cell(**values)
