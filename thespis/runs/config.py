"""Configurations: frozen objects as JSON and back, and settings given as text.

An object becomes ``{"class": "module:QualifiedName", field: value, ...}``, tuples become lists (and come
back as tuples), an enum's member, a function or a number that JSON lacks becomes a dictionary that says
so. The frozen object is the only configuration there is; nothing derived from it is written back.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import importlib
import math
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np

from thespis.core.errors import UserError
from thespis.runs.fields import describe_settings as describe_settings
from thespis.runs.fields import hints_of
from thespis.runs.settings import parse


def to_config(obj: Any) -> Any:
    """``obj`` as JSON-able data. Raises ``TypeError`` for what a configuration cannot hold."""
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        values = {field.name: to_config(getattr(obj, field.name)) for field in _fields(obj)}
        return {"class": class_name(type(obj))} | values
    match obj:
        case enum.Enum():
            return {"enum": class_name(type(obj)), "name": obj.name}
        case None | bool() | int() | str():
            return obj
        case float():
            return float(obj) if math.isfinite(obj) else {"float": repr(float(obj))}
        case list() | tuple():
            return [to_config(item) for item in obj]
        case dict():
            return {"dict": {str(name): to_config(item) for name, item in obj.items()}}
    if callable(obj) and hasattr(obj, "__qualname__"):
        return {"function": class_name(obj)}
    if hasattr(obj, "dtype") and hasattr(obj, "shape"):  # numbers of a sweep may be arrays
        return to_config(np.asarray(obj).tolist())
    raise TypeError(f"a configuration cannot hold a {type(obj).__name__}: {obj!r}")


def from_config(config: Any) -> Any:
    """The inverse of :func:`to_config`. Raises :class:`UserError` if a class is gone or was changed."""
    match config:
        case list():
            return tuple(from_config(item) for item in config)
        case {"class": name}:
            return _build(name, {key: from_config(value) for key, value in config.items() if key != "class"})
        case {"enum": name, "name": member}:
            return locate(name)[member]
        case {"float": text}:
            return float(text)
        case {"dict": items}:
            return {key: from_config(value) for key, value in items.items()}
        case {"function": name}:
            return locate(name)
    return config


def locate(name: str) -> Any:
    """What ``module:QualifiedName`` stands for. Raises :class:`UserError` if it cannot be imported."""
    module, _, qualified = name.partition(":")
    if module == "__main__" or "<locals>" in qualified or "<lambda>" in qualified:
        raise UserError(f"{name} is defined in a script or a function, out of reach of other processes: use a module")
    try:
        found: Any = importlib.import_module(module)
        for part in qualified.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise UserError(f"{name} cannot be imported ({error}): install the version that wrote it") from error
    return found


def class_name(cls: Any) -> str:
    """``module:QualifiedName`` of a class or function."""
    return f"{cls.__module__}:{cls.__qualname__}"


def apply_settings(obj: Any, settings: list[str]) -> Any:
    """A copy of ``obj`` with settings such as ``learning_rate=3e-4`` or ``feed.batch=128``, in that order.

    A name is a dotted path; its end is enough where only one field ends so (a whole path comes first).
    Text is read as the field's annotation wants it; for a field that holds one of several classes it is
    a class's name. Raises :class:`UserError` for an unknown or ambiguous name or an unfit value.
    """
    for setting in settings:
        name, equals, text = setting.partition("=")
        name = name.strip()
        if not equals or not name:
            raise UserError(f"setting {setting!r} is not of the form name=value (like learning_rate=3e-4)")
        obj = _replace(obj, _resolve(obj, name).split("."), text.strip(), name)
    return obj


def settable(obj: Any, prefix: str = "") -> Iterator[str]:
    """The dotted paths of all fields of ``obj`` and of the objects in its fields."""
    for field in _fields(obj):
        value = getattr(obj, field.name)
        yield prefix + field.name
        if dataclasses.is_dataclass(value):
            yield from settable(value, f"{prefix}{field.name}.")


def _fields(obj: Any) -> list[dataclasses.Field]:
    return [field for field in dataclasses.fields(obj) if field.init]


def _build(name: str, values: dict[str, Any]) -> Any:
    cls = locate(name)
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise UserError(f"{name} is no configuration class: install the version that wrote it")
    known = [field.name for field in _fields(cls)]
    if unknown := [key for key in values if key not in known]:
        raise UserError(f"{name} has no {unknown[0]!r}, only {', '.join(known)}: install the version that wrote it")
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name} cannot be built from the configuration: {error}") from error


def _resolve(obj: Any, name: str) -> str:
    paths = list(settable(obj))
    if name in paths:
        return name
    found = [path for path in paths if path.endswith("." + name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(f"setting {name!r} is ambiguous: write one of {', '.join(found)}")
    _unknown(obj, name, paths)


def _unknown(obj: Any, name: str, paths: list[str]) -> NoReturn:
    last = {path.rsplit(".", 1)[-1]: path for path in reversed(paths)}
    near = difflib.get_close_matches(name, paths, 3, 0.5) + [
        last[word] for word in difflib.get_close_matches(name.rsplit(".", 1)[-1], last, 3, 0.5)
    ]
    hint = f"did you mean {' or '.join(dict.fromkeys(near))}?" if near else f"it has {', '.join(paths)}"
    raise UserError(f"{type(obj).__name__} has no setting {name!r}: {hint}")


def _replace(obj: Any, path: list[str], text: str, name: str) -> Any:
    head, *rest = path
    old = getattr(obj, head)
    new = _replace(old, rest, text, name) if rest else parse(text, hints_of(type(obj)).get(head, Any), old, name)
    return _checked(lambda: dataclasses.replace(obj, **{head: new}), f"{name}={text}")


def _checked(make: Callable[[], Any], setting: str) -> Any:
    try:
        return make()
    except (TypeError, ValueError) as error:
        raise UserError(f"setting {setting} is refused: {error}") from error
