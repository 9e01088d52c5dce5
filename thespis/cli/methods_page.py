"""The page of all methods, written from what they say of themselves and from the evidence of papers."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from pathlib import Path
from typing import Any

from thespis.cli.abilities import OBSERVATIONS, abilities
from thespis.evidence import record
from thespis.evidence.page import state
from thespis.methods.registry import NAMES, load
from thespis.papers import registry
from thespis.runs.settings import slots

_HEAD = """# Methods

Each method is one file; its docstring holds the equation, the source and where it differs from common code. How to
choose settings and parts, and what methods reached here, stands in [using methods](using-methods.md). What a method
takes is found by asking it; what fits a slot, by its types. *Evidence* are the papers whose trials try a method.

This page is written by `thespis list methods --write docs`.
"""
FAMILIES = {
    "online": "## Control\n\nOne agent, from its own experience; what replays also learns from a dataset.",
    "imitation": "## Imitation\n\nFrom the actions of others, in a dataset.",
    "teams": "## Teams\n\nAll agents of a world at once: [teams](teams.md), [their methods](team-methods.md).",
    "games": "## Games\n\nAll seats of a [game](games.md): [self-play](self-play.md), [search](search.md).",
    "language": "## Language models\n\nUtterances, in [conversations](language-actors.md), from"
    " [data](language-data.md), or [listed](listed-utterances.md).",
}
"""Headings by the room that a family's methods stand in."""


@dataclasses.dataclass(frozen=True)
class _Told:
    """All that the page says of one method."""

    name: str
    cls: type
    slots: dict[str, tuple[str, ...]]
    evidence: list[str]

    def row(self) -> str:
        """Its row."""
        about, cited = abilities(self.cls()), self.cls.citations[0]  # pyright: ignore[reportAttributeAccessIssue]
        what = (inspect.getdoc(sys.modules[self.cls.__module__]) or "").partition("\n\n")[0].replace("\n", " ")
        seen = "anything" if about["observations"] == list(OBSERVATIONS) else ", ".join(about["observations"])
        parts = ", ".join(f"`{slot}`" for slot in self.slots)
        cells = f"`{self.name}`", what.rstrip("."), ", ".join(about["actions"]), seen, ", ".join(about["loops"])
        return f"| {' | '.join((*cells, parts, ', '.join(self.evidence), f'{cited.authors} {cited.year}'))} |"


def page(evidence: Path) -> str:
    """The page in Markdown; ``evidence``: where the evidence of papers lies."""
    papers = [registry.load(id) for id in registry.ids()]
    verdicts = {paper.id: state(paper, record.read(evidence, paper.id)) for paper in papers}

    def told(name: str) -> _Told:
        cls: Any = load(name)
        own = f"{cls.__module__}:{cls.__qualname__}"
        tried = [f"[{p.id}](papers/{p.id}.md): {verdicts[p.id]}" for p in papers if own in p.parts]
        return _Told(name, cls, {slot: tuple(choices) for slot, choices in slots(cls).items()}, tried)

    text = [_HEAD]
    for room, heading in FAMILIES.items():
        methods = [told(name) for name, path in NAMES.items() if path.startswith(f"thespis.methods.{room}.")]
        text += [heading, "", *_methods(methods), "", *_slots(methods)]
    return "\n".join(text)


def write(evidence: Path, folder: Path) -> Path:
    """Write ``methods.md`` into ``folder``; returns where it is."""
    from thespis.core import disk

    file = folder / "methods.md"
    with disk.one_line("the page of methods", file), disk.replacing(file) as handle:
        handle.write(page(evidence).encode())
    return file


def _methods(methods: list[_Told]) -> list[str]:
    head = "| name | what it is | actions | sees | loops | slots | evidence | source |"
    return [head, "|" + " --- |" * 8, *(method.row() for method in methods)]


def _slots(methods: list[_Told]) -> list[str]:
    """Slots that admit the same parts are one row."""
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for method in methods:
        for slot in method.slots.items():
            found.setdefault(slot, []).append(f"`{method.name}`")
    if not found:
        return []
    rows = [
        f"| `{slot}` | {', '.join(f'`{choice}`' for choice in choices)} | {', '.join(names)} |"
        for (slot, choices), names in sorted(found.items())
    ]
    return ["| slot | parts that fit | of |", "| --- | --- | --- |", *rows, ""]
