"""How text becomes a value of a field of a configuration class."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any, Literal

from thespis.core.errors import UserError
from thespis.runs.fields import union_members

TRUE, FALSE, NONE = ("true", "yes", "on", "1"), ("false", "no", "off", "0"), ("none", "null")


class Unfit(ValueError):
    """A text that cannot be read as the type wanted."""


def parse(text: str, annotation: Any, old: Any, name: str) -> Any:
    """``text`` as a value of ``annotation``; where that says nothing, of the type of the present value.

    Raises :class:`UserError` naming the setting, the text and what would fit.
    """
    try:
        return _parse(text, annotation if _readable(annotation) else _type_of(old))
    except Unfit as error:
        raise UserError(f"setting {name}={text} does not fit: {error}") from error


def slots(cls: type) -> dict[str, dict[str, type]]:
    """Fields of a configuration class that hold one of several parts, with the classes that fit each, by name.

    A part that may be left out has ``none`` among them.
    """
    hints = typing.get_type_hints(cls)
    found = {field.name: _parts(hints[field.name]) for field in dataclasses.fields(cls)}
    return {name: classes for name, classes in found.items() if len(classes) > 1}


def _parts(annotation: Any) -> dict[str, type]:
    members = union_members(annotation) or (annotation,)
    found = {name: part for member in members for name, part in _classes(member).items()}
    return found | {"none": type(None)} if found and type(None) in members else found


def _type_of(old: Any) -> Any:
    if isinstance(old, tuple) and old:
        return tuple[_type_of(old[0]), ...]
    return float if hasattr(old, "dtype") else type(old)


def _readable(annotation: Any) -> bool:
    if annotation in (bool, int, float, str, type(None)) or typing.get_origin(annotation) in (tuple, Literal):
        return True
    if members := union_members(annotation):
        return any(_readable(member) for member in members)
    return isinstance(annotation, type) and (issubclass(annotation, enum.Enum) or bool(_classes(annotation)))


def _parse(text: str, annotation: Any) -> Any:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if members := union_members(annotation):
        return _parse_union(text, members)
    if origin is Literal:
        return _choice(text, {str(member): member for member in args})
    if origin is tuple:
        return _parse_tuple(text, args)
    if annotation in _SCALARS:
        return _SCALARS[annotation](text)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _choice(text, {m.name: m for m in annotation} | {str(m.value): m for m in annotation})
    return _make(text, _classes(annotation))


def _parse_union(text: str, members: tuple[Any, ...]) -> Any:
    """By the first member that can read it: the strictest first, then classes by name, ``str`` last."""
    strictness = [type(None), bool, int, float]
    plain = [member for member in members if _readable(member) and not _classes(member)]
    plain.sort(key=lambda member: strictness.index(member) if member in strictness else len(strictness))
    classes = {name: cls for member in members for name, cls in _classes(member).items()}
    readers: list[Callable[[str], Any]] = [
        functools.partial(_parse, annotation=member) for member in plain if member is not str
    ]
    if classes:
        readers.append(functools.partial(_make, classes=classes))
    if str in plain:
        readers.append(str)
    reasons = []
    for read in readers:
        try:
            return read(text)
        except Unfit as error:
            reasons.append(str(error))
    raise Unfit(" or ".join(reasons))


def _parse_bool(text: str) -> bool:
    if text.lower() in TRUE + FALSE:
        return text.lower() in TRUE
    raise Unfit("true or false is wanted")


def _parse_none(text: str) -> None:
    if text.lower() not in NONE:
        raise Unfit("none is wanted")


def _parse_int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
        if number == int(number):
            return int(number)  # 1e6 is a whole number to everybody
    except (ValueError, OverflowError):
        pass
    raise Unfit("a whole number is wanted")


def _parse_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Unfit("a number is wanted") from None


_SCALARS: dict[Any, Any] = {
    bool: _parse_bool,
    int: _parse_int,
    float: _parse_float,
    str: str,
    type(None): _parse_none,
}


def _parse_tuple(text: str, args: tuple[Any, ...]) -> tuple:
    items = [item.strip() for item in text.strip("()[] ").split(",") if item.strip()]
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(_parse(item, args[0]) for item in items)
    if len(items) != len(args):
        raise Unfit(f"{len(args)} values with commas between them are wanted")
    return tuple(_parse(item, arg) for item, arg in zip(items, args, strict=True))


def _choice(text: str, choices: dict[str, Any]) -> Any:
    if text not in choices:
        raise Unfit(f"one of {', '.join(choices)} is wanted")
    return choices[text]


def _classes(annotation: Any) -> dict[str, type]:
    """The concrete configuration classes that ``annotation`` admits, by name."""
    if not isinstance(annotation, type) or annotation is object:
        return {}
    found = {} if inspect.isabstract(annotation) else {annotation.__name__: annotation}
    for child in type.__subclasses__(annotation):
        found |= _classes(child)
    return {name: cls for name, cls in found.items() if dataclasses.is_dataclass(cls)}


def _make(text: str, classes: dict[str, type]) -> Any:
    if not classes:
        raise Unfit("this setting cannot be given as text")
    cls = _choice(text.removesuffix("()"), classes)
    try:
        return cls()
    except TypeError as error:
        raise Unfit(f"{text} cannot be made without settings of its own ({error})") from error
