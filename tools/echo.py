"""Duplicate lines: the share of each file that its most similar sibling also has. ``python tools/echo.py [folder]``.

The echo of a file is the share of its lines, without blank lines and comments, that also stand, in the same order, in
the sibling with which it shares most (longest common subsequence). It shows copied code.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Echo(NamedTuple):
    """One file: number of code lines, its most similar sibling (``None`` if alone), and number of shared lines."""

    path: Path
    lines: int
    sibling: Path | None
    shared: int

    @property
    def share(self) -> float:
        """Shared lines per line, in [0, 1]."""
        return self.shared / self.lines if self.lines else 0.0


def code_lines(text: str) -> list[str]:
    """The lines of ``text``, stripped, without blank ones and comments."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def common(a: list[str], b: list[str]) -> int:
    """Length of the longest common subsequence of lines (bit-parallel: one integer holds a whole row)."""
    positions: dict[str, int] = {}
    for i, line in enumerate(a):
        positions[line] = positions.get(line, 0) | 1 << i
    row = every = (1 << len(a)) - 1
    for line in b:
        matched = row & positions.get(line, 0)
        row = ((row + matched) | (row - matched)) & every
    return len(a) - row.bit_count()


def echoes(paths: Iterable[Path]) -> list[Echo]:
    """The echo of each of ``paths`` among the others."""
    texts = {path: code_lines(path.read_text()) for path in paths}
    results = []
    for path, lines in texts.items():
        others = [(common(lines, texts[other]), other) for other in texts if other != path]
        shared, sibling = max(others, default=(0, None), key=lambda pair: pair[0])
        results.append(Echo(path, len(lines), sibling, shared))
    return results


def mean(results: Iterable[Echo]) -> float:
    """Line-weighted mean share, in [0, 1]."""
    results = list(results)
    return sum(echo.shared for echo in results) / max(sum(echo.lines for echo in results), 1)


def sources(folder: Path) -> list[Path]:
    """The Python files of a folder and its subfolders, without ``__init__.py``."""
    return sorted(path for path in folder.rglob("*.py") if path.name != "__init__.py")


def package_echoes(package: Path) -> list[Echo]:
    """Echoes of all files of the package, each within its folder."""
    folders = sorted(path for path in package.iterdir() if path.is_dir())
    return [echo for folder in folders for echo in echoes(sources(folder))]


def main() -> None:
    """Print the table for a folder (default: the package, folder by folder)."""
    package = Path(__file__).parents[1] / "thespis"
    results = echoes(sources(Path(sys.argv[1]))) if len(sys.argv) > 1 else package_echoes(package)
    for echo in sorted(results, key=lambda echo: -echo.share):
        sibling = echo.sibling.name if echo.sibling else "-"
        print(f"{echo.share:6.0%} {echo.lines:5d}  {echo.path}  ({sibling})")
    print(f"{mean(results):6.0%} of all lines")


if __name__ == "__main__":
    main()
