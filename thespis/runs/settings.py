"""Parsing of settings: text to a value of a field of a configuration class."""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import inspect
import itertools
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, Union

from thespis.core import renames
from thespis.core.errors import UserError
from thespis.core.parts import load_part
from thespis.runs.part_classes import concrete_classes, is_slot, qualified_class, registered_parts
from thespis.runtime.user_modules import import_user_module


class SettingInfo(NamedTuple):
    """One field: dotted path, type as text, default value and description."""

    path: str
    type: str
    default: Any
    doc: str


def type_hints(cls: type) -> dict[str, Any]:
    """The evaluated annotations of ``cls``; empty if they cannot be evaluated."""
    try:
        return typing.get_type_hints(cls)
    except Exception:  # one name that exists only for the type checker makes the whole call fail
        return {}


def describe_settings(cls: Any) -> list[SettingInfo]:
    """Every setting of a configuration class (or object), including those of the objects in its fields.

    A field's description is the string literal that follows it, else its entry under ``Args`` (or
    ```name```) in the class's docstring, else empty. The default of a field without one is
    ``dataclasses.MISSING``.
    """
    return list(_iter_settings(cls, ""))


def _iter_settings(cls: Any, prefix: str) -> Iterator[SettingInfo]:
    kind = cls if isinstance(cls, type) else type(cls)
    hints, docs = type_hints(kind), _field_docs(kind)
    for field in dataclasses.fields(kind):
        if not field.init:
            continue
        default = _default(field) if isinstance(cls, type) else getattr(cls, field.name)
        hint = hints.get(field.name, field.type)
        yield SettingInfo(prefix + field.name, type_name(hint), default, docs.get(field.name, ""))
        if dataclasses.is_dataclass(default) and not isinstance(default, type):
            yield from _iter_settings(default, f"{prefix}{field.name}.")


def _default(field: dataclasses.Field) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


OWN_CLASS = "module:Class"
"""How the types of slots name a class of the user's own."""


def type_name(annotation: Any) -> str:
    """A type as text: ``float``, ``tuple[int, ...]``, ``FixedScale | RunningNorm``; a slot as all parts that fit."""
    if isinstance(annotation, str):
        return annotation
    if is_slot(annotation):
        return " | ".join([*concrete_classes(annotation), *registered_parts(annotation).names(), OWN_CLASS])
    if members := union_members(annotation):
        names = [name for member in members for name in type_name(member).split(" | ")]
        own = [OWN_CLASS] if OWN_CLASS in names else []
        return " | ".join([*(name for name in dict.fromkeys(names) if name != OWN_CLASS), *own])
    if annotation is type(None):
        return "none"
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return annotation.__name__
    return re.sub(r"\b(?:\w+\.)+", "", str(annotation))


def union_members(annotation: Any) -> tuple[Any, ...]:
    """The members of a union that a user may write; ``()`` for other types.

    With ``float`` among them, ``int`` and scalar array types (which numbers become inside a program) are left out.
    """
    if typing.get_origin(annotation) not in (Union, types.UnionType):
        return ()
    members = typing.get_args(annotation)
    if float not in members:
        return members
    return tuple(m for m in members if m is not int and not hasattr(m, "dtypes"))


def _field_docs(cls: type) -> dict[str, str]:
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if dataclasses.is_dataclass(base):
            docs |= _docstring_entries(base) | _attribute_docstrings(base)
    return docs


def _attribute_docstrings(cls: type) -> dict[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):  # a class made at run time has no source
        return {}
    body = tree.body[0].body if tree.body and isinstance(tree.body[0], ast.ClassDef) else []
    docs = {}
    for node, after in itertools.pairwise(body):
        match node, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = " ".join(text.split())
    return docs


def _docstring_entries(cls: type) -> dict[str, str]:
    """Entries ``name: description`` of the class docstring, with their indented continuation lines."""
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


TRUE_WORDS, FALSE_WORDS, NONE_WORDS = ("true", "yes", "on", "1"), ("false", "no", "off", "0"), ("none", "null")


class SettingError(ValueError):
    """A text that cannot be parsed as the wanted type."""


def parse_setting(text: str, annotation: Any, current: Any, name: str) -> Any:
    """Parse ``text`` as ``annotation``, or as the current value's type where the annotation cannot be parsed.

    Raises :class:`UserError` with the setting, the text and what would fit.
    """
    try:
        return _parse(text, annotation if _is_parsable(annotation) else _type_of(current))
    except SettingError as error:
        raise UserError(f"setting {name}={text} does not fit: {error}") from error


def part_choices(cls: type) -> dict[str, dict[str, type]]:
    """Fields of a configuration class that hold one of several parts, with the possible classes by name.

    An optional part has ``none`` among them.
    """
    hints = typing.get_type_hints(cls)
    choices = {field.name: _part_classes(hints[field.name]) for field in dataclasses.fields(cls)}
    return {name: classes for name, classes in choices.items() if len(classes) > 1}


def _part_classes(annotation: Any) -> dict[str, type]:
    members = union_members(annotation) or (annotation,)
    classes = {name: part for member in members for name, part in concrete_classes(member).items()}
    return classes | {"none": type(None)} if classes and type(None) in members else classes


def _type_of(old: Any) -> Any:
    if isinstance(old, tuple) and old:
        return tuple[_type_of(old[0]), ...]
    return float if hasattr(old, "dtype") else type(old)


def _is_parsable(annotation: Any) -> bool:
    if annotation in (bool, int, float, str, type(None)) or typing.get_origin(annotation) in (tuple, Literal, Callable):
        return True
    if members := union_members(annotation):
        return any(_is_parsable(member) for member in members)
    return isinstance(annotation, type) and (issubclass(annotation, enum.Enum) or bool(concrete_classes(annotation)))


def _parse(text: str, annotation: Any) -> Any:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if members := union_members(annotation):
        return _parse_union(text, members)
    if origin is Literal:
        return _parse_choice(text, {str(member): member for member in args})
    if origin is tuple:
        return _parse_tuple(text, args)
    if annotation in _SCALARS:
        return _SCALARS[annotation](text)
    if origin is Callable:
        return _parse_function(text)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _parse_choice(text, {m.name: m for m in annotation} | {str(m.value): m for m in annotation})
    if is_slot(annotation):
        return _parse_slot(text, (annotation,), concrete_classes(annotation))
    return _parse_class(text, concrete_classes(annotation))


def _parse_union(text: str, members: tuple[Any, ...]) -> Any:
    """Parse by the first member that accepts the text: the strictest first, then classes by name, ``str`` last."""
    strictness = [type(None), bool, int, float]
    plain = [member for member in members if _is_parsable(member) and not concrete_classes(member)]
    plain.sort(key=lambda member: strictness.index(member) if member in strictness else len(strictness))
    classes = {name: cls for member in members for name, cls in concrete_classes(member).items()}
    slots = tuple(member for member in members if is_slot(member))
    functions = [member for member in plain if typing.get_origin(member) is Callable]
    plain = [member for member in plain if member not in functions]
    if ":" in text and (functions or slots):  # the user's own part
        own = _parse_function(text.removesuffix("()"))
        if functions and not (isinstance(own, type) and issubclass(own, slots)):
            return own
        return _make_own(own, text, slots)
    readers: list[Callable[[str], Any]] = [
        functools.partial(_parse, annotation=member) for member in plain if member is not str
    ]
    if classes:
        readers.append(functools.partial(_parse_slot, slots=slots, classes=classes))
    if str in plain:
        readers.append(str)
    if type(None) in members and renames.renamed_choice(text.removesuffix("()"), ["none"]):
        renames.notice(f"{text} is now called none")
        return None
    reasons = []
    for read in readers:
        try:
            return read(text)
        except SettingError as error:
            reasons.append(str(error))
    raise SettingError(" or ".join(reasons))


def _parse_bool(text: str) -> bool:
    if text.lower() in TRUE_WORDS + FALSE_WORDS:
        return text.lower() in TRUE_WORDS
    raise SettingError("true or false is wanted")


def _parse_none(text: str) -> None:
    if text.lower() not in NONE_WORDS:
        raise SettingError("none is wanted")


def _parse_int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
        if number == int(number):
            return int(number)  # accepts 1e6
    except (ValueError, OverflowError):
        pass
    raise SettingError("a whole number is wanted")


def _parse_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SettingError("a number is wanted") from None


_SCALARS: dict[Any, Any] = {
    bool: _parse_bool,
    int: _parse_int,
    float: _parse_float,
    str: str,
    type(None): _parse_none,
}


def _parse_function(text: str) -> Any:
    """The function or class ``module:name``, or a function of ``jax.nn`` or ``jax.numpy`` by its name alone."""
    module, colon, name = text.partition(":")
    if not colon:
        import jax

        if callable(function := getattr(jax.nn, text, None) or getattr(jax.numpy, text, None)):
            return function
        raise SettingError("a function of jax.nn (relu, tanh, gelu) or module:name is wanted")
    try:
        value: Any = import_user_module(module)
    except ImportError as error:
        raise SettingError(f"{module} cannot be imported ({error})") from error
    for part in name.split("."):
        value = getattr(value, part, None)
    if not callable(value):
        raise SettingError(f"{module} has no class or function {name!r}")
    return value


def _parse_tuple(text: str, args: tuple[Any, ...]) -> tuple:
    items = [item.strip() for item in text.strip("()[] ").split(",") if item.strip()]
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(_parse(item, args[0]) for item in items)
    if len(items) != len(args):
        raise SettingError(f"{len(args)} values with commas between them are wanted")
    return tuple(_parse(item, arg) for item, arg in zip(items, args, strict=True))


def _parse_choice(text: str, choices: dict[str, Any]) -> Any:
    if text not in choices:
        raise SettingError(f"one of {', '.join(choices)} is wanted")
    return choices[text]


def _parse_slot(text: str, slots: tuple[type, ...], classes: dict[str, type]) -> Any:
    """An object of a class by its name, by the name that an installed distribution gave it, or ``module:Class``."""
    if ":" in text and slots:
        return _parse_own_class(text, slots)
    registered = registered_parts(*slots)
    if (part := registered.find(text.removesuffix("()"))) is None:
        return _parse_class(text, classes, registered.names())
    if part.name in classes and part.path != qualified_class(classes[part.name]):
        raise UserError(
            f"{part.name} is claimed by {qualified_class(classes[part.name])} and {part.package} ({part.path}): "
            "write the class as module:Class"
        )
    return _make_own(load_part(part), part.path, slots)


def _parse_own_class(text: str, slots: tuple[type, ...]) -> Any:
    """An object of the user's class ``module:Class``, which derives from one of ``slots``."""
    return _make_own(_parse_function(text.removesuffix("()")), text, slots)


def _make_own(cls: Any, text: str, slots: tuple[type, ...]) -> Any:
    names = " or ".join(slot.__name__ for slot in slots)
    if not (isinstance(cls, type) and issubclass(cls, slots) and dataclasses.is_dataclass(cls)):
        raise SettingError(f"{text} is no frozen dataclass that derives from {names}")
    if inspect.isabstract(cls):
        missing: frozenset[str] = getattr(cls, "__abstractmethods__")  # noqa: B009 (unknown to type checkers)
        raise SettingError(f"{text} lacks {', '.join(sorted(missing))}")
    return _make(cls, text)


def _parse_class(text: str, classes: dict[str, type], more: Sequence[str] = ()) -> Any:
    """An object of one of ``classes``; ``more``: other names that could be written, for the error."""
    if not classes:
        raise SettingError("this setting cannot be given as text")
    text = text.removesuffix("()")
    if text not in classes and (new := renames.renamed_choice(text, classes)):
        renames.notice(f"{text} is now called {new}")
        text = new
    if text not in classes:
        raise SettingError(f"one of {', '.join([*classes, *more])} is wanted")
    return _make(classes[text], text)


def _make(cls: type, text: str) -> Any:
    try:
        return cls()
    except TypeError as error:
        raise SettingError(f"{text} cannot be made without settings of its own ({error})") from error
