"""A grid: every combination of the values of some settings, as texts that settings are given in."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from thespis.core.errors import UserError

Grid = Mapping[str, Any] | Sequence[str]
"""``{"learning_rate": [1e-3, 3e-4]}``, or texts such as ``learning_rate=1e-3,3e-4``."""

OPEN, CLOSED = "([", ")]"


def points(grid: Grid) -> list[tuple[str, ...]]:
    """All combinations, each as texts ``name=value``; the last name changes fastest. An empty grid has one point.

    Raises :class:`UserError` for a name without values, or one that is given twice.
    """
    axes: dict[str, list[str]] = {}
    for name, values in _pairs(grid):
        if name in axes:
            raise UserError(f"--grid has {name} twice: give all its values at once, as {name}=1,2")
        axes[name] = _values(name, values)
    return [tuple(point) for point in itertools.product(*([f"{n}={v}" for v in axes[n]] for n in axes))]


def _pairs(grid: Grid) -> Iterable[tuple[str, Any]]:
    if isinstance(grid, Mapping):
        return grid.items()
    parted = [text.partition("=") for text in grid]
    for name, equals, _ in parted:
        if not equals or not name.strip():
            raise UserError(f"--grid {name} is not of the form name=value,value (like learning_rate=1e-3,3e-4)")
    return [(name.strip(), values) for name, _, values in parted]


def _values(name: str, values: Any) -> list[str]:
    if not isinstance(values, str | Iterable):
        raise UserError(f"--grid {name}: {values!r} is one value where a list of them is wanted")
    texts = split(values) if isinstance(values, str) else [str(value) for value in values]
    if not texts or not all(texts):
        raise UserError(f"--grid {name} lacks a value: give it as {name}=1,2 (a tuple in brackets: hidden=[64,64],32)")
    return texts


def split(text: str) -> list[str]:
    """The values between commas; commas in round or square brackets belong to a value."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in OPEN) - (letter in CLOSED)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    if depth:
        raise UserError(f"--grid: a bracket in {text} has no partner")
    return [part.strip() for part in parts]
