"""Gymnasium spaces and values of them, part by part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gymnasium import spaces as g

from thespis.cli.doctor_checks.check import Failed


def parts(name: str, space: Any, value: Any) -> Iterator[tuple[str, Any, Any]]:
    """``(name, space, value)`` of every leaf. Raises :class:`Failed` where a part is missing."""
    match space:
        case g.Dict():
            if not isinstance(value, dict) or set(value) != set(space.spaces):
                raise Failed(f"{name} is {describe(value)}; its space declares a dict of {', '.join(space.spaces)}")
            for part in space.spaces:
                yield from parts(f"{name}[{part!r}]", space[part], value[part])
        case g.Tuple():
            if not isinstance(value, tuple) or len(value) != len(space.spaces):
                raise Failed(f"{name} is {describe(value)}; its space declares a tuple of {len(space.spaces)}")
            for i, part in enumerate(space.spaces):
                yield from parts(f"{name}[{i}]", part, value[i])
        case _:
            yield name, space, value


def limits(space: Any) -> tuple[Any, Any]:
    """Lowest and highest values of a leaf space."""
    match space:
        case g.Box():
            return space.low.astype("float64"), space.high.astype("float64")
        case g.Discrete():
            return float(space.start), float(space.start + space.n - 1)
        case g.MultiDiscrete():
            return space.start.astype("float64"), (space.start + space.nvec - 1).astype("float64")
    return 0.0, 1.0  # MultiBinary


def space_leaves(space: Any) -> list[Any]:
    """The leaf spaces of a space."""
    if isinstance(space, g.Dict | g.Tuple):
        parts = space.spaces.values() if isinstance(space, g.Dict) else space.spaces
        return [leaf for part in parts for leaf in space_leaves(part)]
    return [space]


def short(space: Any) -> str:
    """A space in a few words."""
    match space:
        case g.Box():
            return f"Box{list(space.shape)} {space.dtype}"
        case g.Dict():
            return f"Dict({', '.join(space.spaces)})"
    return str(space)


def describe(value: Any) -> str:
    """A value in a few words, and its type."""
    text = repr(value)
    return f"{text if len(text) < 60 else text[:57] + '...'} ({type(value).__name__})"
