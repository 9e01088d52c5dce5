"""Names that classes, settings and leaves of checkpoints had in earlier versions, so that old runs are still read.

``renames.tsv`` holds a line for each class that has another name or other fields today: the old ``module:Class``, the
new one (or ``None``, for a part that did nothing and is now left out), and its fields, ``old=new``. Lines without a
colon say which module a module became or went into; they hold for classes that have no line of their own. No old name
means anything else today, so that it can be looked up whenever a name is not found.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Iterable
from importlib import resources
from typing import Any, NamedTuple

_TOKEN = re.compile(r"""\.\w+|\[(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\]]*)\]|<[^>]*>""")


class RenamedWarning(FutureWarning):
    """A name of an earlier version was used; it is read as today's."""


def notice(text: str) -> None:
    """Warn, in one line, that an old name was used."""
    warnings.warn(text, RenamedWarning, stacklevel=2)


class RenamedClass(NamedTuple):
    """What became of a class: its name today, ``None`` if the part is left out now, and new names of fields by old."""

    name: str | None
    fields: dict[str, str]


@functools.cache
def _rows() -> list[tuple[str, str, dict[str, str]]]:
    text = resources.files("thespis.core").joinpath("renames.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines()]
    return [(old, new, dict(pair.split("=") for pair in fields.split())) for old, new, fields in rows]


@functools.cache
def _table() -> dict[str, RenamedClass]:
    return {old: RenamedClass(None if new == "None" else new, fields) for old, new, fields in _rows() if ":" in old}


@functools.cache
def _modules() -> dict[str, str]:
    return {old: new for old, new, _ in _rows() if ":" not in old}


def renamed_class(name: str) -> RenamedClass | None:
    """What became of the class ``module:Class`` of an earlier version; ``None`` if nothing is known of it."""
    module, _, qualified = name.partition(":")
    if name not in _table() and module in _modules():
        return RenamedClass(f"{_modules()[module]}:{qualified}", {})
    return _table().get(name)


def current_name(name: str) -> str:
    """Today's name of the class or environment ``module:Name`` of an earlier version; itself if nothing is known."""
    renamed = renamed_class(name)
    return name if renamed is None or renamed.name is None else renamed.name


def renamed_fields_of(name: str) -> dict[str, str]:
    """New names of the fields of the class that was called ``module:Class`` in an earlier version, by old name."""
    renamed = renamed_class(name)
    return renamed.fields if renamed is not None else {}


@functools.cache
def _by_class() -> dict[str, dict[str, str]]:
    by_class: dict[str, dict[str, str]] = {}
    for name, fields in _table().values():
        by_class.setdefault(name or "", {}).update(fields)
    return by_class


def renamed_fields(cls: type) -> dict[str, str]:
    """New names of the fields of a class of today, by old name."""
    return _by_class().get(f"{cls.__module__}:{cls.__qualname__}", {})


@functools.cache
def _short_names() -> dict[str, set[str]]:
    short: dict[str, set[str]] = {}
    for old, (new, _) in _table().items():
        last = "none" if new is None else new.split(":")[1]
        short.setdefault(old.split(":")[1], set()).add(last)
    return short


def renamed_choice(old: str, choices: Iterable[str]) -> str | None:
    """The one of ``choices`` (classes by name, or ``none``) whose name once was ``old``; ``None`` if no one's was."""
    fitting = _short_names().get(old, set()) & set(choices)
    return fitting.pop() if len(fitting) == 1 else None


@functools.cache
def _field_pairs() -> frozenset[tuple[str, str]]:
    return frozenset((f".{old}", f".{new}") for _, fields in _table().values() for old, new in fields.items())


def _tree(paths: Iterable[str]) -> dict[str, Any]:
    """Paths as nested dictionaries, a level for each part."""
    root: dict[str, Any] = {}
    for path in paths:
        node = root
        for token in _TOKEN.findall(path):
            node = node.setdefault(token, {})
    return root


def renamed_paths(stored: list[str], wanted: list[str]) -> list[str]:
    """The paths of a checkpoint's leaves in today's names, where ``wanted`` shows what these may be.

    Both are in the order of the tree, which renaming does not change: among children of one node an old name stands
    for the first of the new ones that it is known to have become.
    """
    root = _tree(wanted)

    def children(node: dict[str, Any], now: dict[str, Any]) -> dict[str, str]:
        free = [name for name in now if name not in node]
        names = {}
        for name in node:
            fitting = name not in now and next((new for new in free if (name, new) in _field_pairs()), None)
            if fitting:
                free.remove(fitting)
            names[name] = fitting or name
        return names

    def walk(node: dict[str, Any], now: dict[str, Any], then: str, today: str, into: dict[str, str]) -> None:
        names = children(node, now)
        into[then] = today
        for name, new in names.items():
            walk(node[name], now.get(new, {}), then + name, today + new, into)

    translated: dict[str, str] = {}
    walk(_tree(stored), root, "", "", translated)
    return [translated.get(path, path) for path in stored]
