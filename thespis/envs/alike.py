"""Which agents of a world are alike, and so are a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thespis.core.agents import Group

Members = tuple[tuple[str, tuple[int, ...]], ...]
"""Names of groups, and the places of their agents in the world's own order."""


def alike(names: Sequence[str], kinds: Sequence[Any]) -> Members:
    """Agents whose names differ by a number at their end alone, and whose ``kinds`` (spaces) are the same.

    A group is called what its agents' names have in common (``agent`` if they are mere numbers); agents of one such
    name and different kinds are groups of their own.
    """
    found: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        found.setdefault(name.rstrip("0123456789").rstrip("_- ") or "agent", []).append(i)
    groups: list[tuple[str, tuple[int, ...]]] = []
    for stem, places in found.items():
        same = all(kinds[i] == kinds[places[0]] for i in places)
        groups += [(stem, tuple(places))] if same else [(names[i], (i,)) for i in places]
    return tuple(groups)


def groups_of(members: Members) -> tuple[Group, ...]:
    """The groups of an :class:`~thespis.core.records.EnvSpec`."""
    return tuple(Group(name, len(places)) for name, places in members)
