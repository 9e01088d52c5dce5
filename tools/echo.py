"""How much of each file stands in its nearest sibling: ``python tools/echo.py [folder]``.

Echo is the share of a file's lines, without blank lines and comments, that also stand, in the same order, in
the sibling with which it shares most (longest common subsequence). Copied code shows here before it rots.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Echo(NamedTuple):
    """One file: its code lines, the sibling it shares most with (``None`` if alone), how many it shares."""

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
    where: dict[str, int] = {}
    for i, line in enumerate(a):
        where[line] = where.get(line, 0) | 1 << i
    row = every = (1 << len(a)) - 1
    for line in b:
        matched = row & where.get(line, 0)
        row = ((row + matched) | (row - matched)) & every
    return len(a) - row.bit_count()


def echoes(paths: Iterable[Path]) -> list[Echo]:
    """The echo of each of ``paths`` among the others."""
    texts = {path: code_lines(path.read_text()) for path in paths}
    found = []
    for path, lines in texts.items():
        others = [(common(lines, texts[other]), other) for other in texts if other != path]
        shared, sibling = max(others, default=(0, None), key=lambda pair: pair[0])
        found.append(Echo(path, len(lines), sibling, shared))
    return found


def mean(found: Iterable[Echo]) -> float:
    """Line-weighted mean share, in [0, 1]."""
    found = list(found)
    return sum(echo.shared for echo in found) / max(sum(echo.lines for echo in found), 1)


def sources(folder: Path) -> list[Path]:
    """The Python files of a folder that hold code of their own, deep."""
    return sorted(path for path in folder.rglob("*.py") if path.name != "__init__.py")


def house(package: Path) -> list[Echo]:
    """Every file of the package among the files of its room."""
    rooms = sorted(path for path in package.iterdir() if path.is_dir())
    return [echo for room in rooms for echo in echoes(sources(room))]


def main() -> None:
    """Print the table for a folder (default: the package, room by room)."""
    package = Path(__file__).parents[1] / "thespis"
    found = echoes(sources(Path(sys.argv[1]))) if len(sys.argv) > 1 else house(package)
    for echo in sorted(found, key=lambda echo: -echo.share):
        sibling = echo.sibling.name if echo.sibling else "-"
        print(f"{echo.share:6.0%} {echo.lines:5d}  {echo.path}  ({sibling})")
    print(f"{mean(found):6.0%} of all lines")


if __name__ == "__main__":
    main()
