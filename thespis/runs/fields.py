"""What the fields of a configuration class mean: types, defaults and documentation, read from its source."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import re
import textwrap
import types
import typing
from collections.abc import Iterator
from typing import Any, NamedTuple, Union


class Setting(NamedTuple):
    """One field: dotted path, type as text, default value and what it means."""

    path: str
    type: str
    default: Any
    doc: str


def hints_of(cls: type) -> dict[str, Any]:
    """The evaluated annotations of ``cls``; those that cannot be evaluated are ``Any``."""
    try:
        return typing.get_type_hints(cls)
    except Exception:  # a name that exists only for the type checker spoils the whole call
        return {}


def describe_settings(cls: Any) -> list[Setting]:
    """Every setting of a configuration class (or object), those of the objects in its fields included.

    A field's meaning is the string literal that follows it, else its entry under ``Args`` (or
    ```name```) in the class's docstring, else empty. The default of a field without one is
    ``dataclasses.MISSING``.
    """
    return list(_describe(cls, ""))


def _describe(cls: Any, prefix: str) -> Iterator[Setting]:
    kind = cls if isinstance(cls, type) else type(cls)
    hints, docs = hints_of(kind), _docs(kind)
    for field in dataclasses.fields(kind):
        if not field.init:
            continue
        default = _default(field) if isinstance(cls, type) else getattr(cls, field.name)
        hint = hints.get(field.name, field.type)
        yield Setting(prefix + field.name, type_text(hint), default, docs.get(field.name, ""))
        if dataclasses.is_dataclass(default) and not isinstance(default, type):
            yield from _describe(default, f"{prefix}{field.name}.")


def _default(field: dataclasses.Field) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def type_text(annotation: Any) -> str:
    """A type as a reader wants it: ``float``, ``tuple[int, ...]``, ``FixedScale | RunningNorm``."""
    if isinstance(annotation, str):
        return annotation
    if members := union_members(annotation):
        return " | ".join(type_text(member) for member in members)
    if annotation is type(None):
        return "none"
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return annotation.__name__
    return re.sub(r"\b(?:\w+\.)+", "", str(annotation))


def union_members(annotation: Any) -> tuple[Any, ...]:
    """What a person may write for a union, ``()`` for anything else.

    Beside ``float`` it need not name ``int``, nor the scalar arrays that a number becomes inside a program.
    """
    if typing.get_origin(annotation) not in (Union, types.UnionType):
        return ()
    members = typing.get_args(annotation)
    if float not in members:
        return members
    return tuple(m for m in members if m is not int and not hasattr(m, "dtypes"))


def _docs(cls: type) -> dict[str, str]:
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if dataclasses.is_dataclass(base):
            docs |= _docstring_entries(base) | _attribute_docstrings(base)
    return docs


def _attribute_docstrings(cls: type) -> dict[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):  # made at run time: there is no source
        return {}
    body = tree.body[0].body if tree.body and isinstance(tree.body[0], ast.ClassDef) else []
    docs = {}
    for node, after in itertools.pairwise(body):
        match node, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = " ".join(text.split())
    return docs


def _docstring_entries(cls: type) -> dict[str, str]:
    """Entries ``name: meaning`` of the class docstring, indented lines continuing them."""
    docs: dict[str, str] = {}
    current, depth = "", 0
    names = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for line in inspect.cleandoc(cls.__doc__ or "").splitlines():
        indent = len(line) - len(line.lstrip())
        entry = re.match(r"\s*(?:[-*] )?`{0,2}(\w+)`{0,2}(?: \([^)]*\))?: (.*)", line)
        if entry and entry[1] in names:
            current, depth = entry[1], indent
            docs[current] = entry[2].strip()
        elif current and line.strip() and indent > depth:
            docs[current] += " " + line.strip()
        else:
            current = ""
    return docs
