"""Grouping of agents that share a name stem and equal specs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thespis.core.spaces import AgentGroup

GroupMembers = tuple[tuple[str, tuple[int, ...]], ...]
"""Name of each group, with the indices of its agents in the environment's own order."""


def group_agents(names: Sequence[str], specs: Sequence[Any]) -> GroupMembers:
    """Groups agents whose names differ only by a trailing number and whose ``specs`` (spaces) are equal.

    A group is named after the common part of its agents' names (``agent`` if the names are bare numbers). Agents with
    the same stem but different specs become groups of one each.
    """
    indices_by_stem: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        indices_by_stem.setdefault(name.rstrip("0123456789").rstrip("_- ") or "agent", []).append(i)
    groups: list[tuple[str, tuple[int, ...]]] = []
    for stem, indices in indices_by_stem.items():
        same = all(specs[i] == specs[indices[0]] for i in indices)
        groups += [(stem, tuple(indices))] if same else [(names[i], (i,)) for i in indices]
    return tuple(groups)


def make_groups(members: GroupMembers) -> tuple[AgentGroup, ...]:
    """Make the agent groups of an :class:`~thespis.core.records.EnvSpec` from names and member indices."""
    return tuple(AgentGroup(name, len(indices)) for name, indices in members)
