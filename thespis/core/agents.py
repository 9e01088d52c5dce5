"""Many agents in one world: groups of agents alike, and how values of theirs are laid out.

All that agents have of their own is a dict by group, with an axis ``[agent]`` behind the others. Functions here take a
world of one agent as well, for which nothing of that is there: callers have one code path.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from thespis.core.spaces import Space, Tree


@dataclasses.dataclass(frozen=True)
class Group:
    """``count`` agents that see and do alike."""

    name: str
    count: int


def per_group(groups: tuple[Group, ...], space: Space, build: Callable[..., Any], *values: Any) -> Any:
    """``build(space, axes, *values)`` for each group, by name; ``axes`` is ``(count,)``.

    With no groups it is called once, for the whole, with axes ``()``.
    """
    if not groups:
        return build(space, (), *values)
    parts = dict(space.parts) if isinstance(space, Tree) else {}

    def of(value: Any, name: str) -> Any:
        return None if value is None else value[name]

    return {g.name: build(parts[g.name], (g.count,), *(of(value, g.name) for value in values)) for g in groups}
