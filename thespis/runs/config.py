"""Configurations: frozen dataclass objects as JSON and back, and settings from text.

An object becomes ``{"class": "module:QualifiedName", field: value, ...}``, tuples become lists (and come
back as tuples), an enum's member, a function or a number that JSON lacks becomes a dictionary with a
key for its kind. The frozen object is the only configuration; nothing derived from it is written back.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import importlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from thespis.core import renames
from thespis.core.errors import UserError
from thespis.runs import foreign_names
from thespis.runs.ranges import check_field
from thespis.runs.settings import describe_settings as describe_settings
from thespis.runs.settings import parse_setting, type_hints
from thespis.runs.trust import check_module, check_object


def to_config(value: Any) -> Any:
    """``value`` as JSON-able data. Raises ``TypeError`` for values that a configuration cannot hold."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        values = {field.name: to_config(getattr(value, field.name)) for field in _fields(value)}
        return {"class": qualified_name(type(value))} | values
    match value:
        case enum.Enum():
            return {"enum": qualified_name(type(value)), "name": value.name}
        case None | bool() | int() | str():
            return value
        case float():
            return float(value) if math.isfinite(value) else {"float": repr(float(value))}
        case list() | tuple():
            return [to_config(item) for item in value]
        case dict():
            return {"dict": {str(name): to_config(item) for name, item in value.items()}}
    if callable(value) and hasattr(value, "__qualname__"):
        return {"function": qualified_name(value)}
    if hasattr(value, "dtype") and hasattr(value, "shape"):  # a sweep's numbers may be arrays
        return to_config(np.asarray(value).tolist())
    raise TypeError(f"a configuration cannot hold a {type(value).__name__}: {value!r}")


def check_storable(value: Any, name: str) -> None:
    """Check that a configured object, called ``name``, can be written into run.json and read in another process.

    Raises :class:`UserError` that names the setting, for a lambda, a local function or class, or any other object.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        _check_importable(type(value), name)
        for field in _fields(value):
            prefix = "" if name in _COMPONENTS else f"{name}."
            check_storable(getattr(value, field.name), prefix + field.name)
    elif isinstance(value, list | tuple):
        for item in value:
            check_storable(item, name)
    elif isinstance(value, dict):
        for key, item in value.items():
            check_storable(item, f"{name}[{key!r}]")
    elif callable(value) and hasattr(value, "__qualname__"):
        _check_importable(value, name)
    else:
        try:
            to_config(value)
        except TypeError:
            raise UserError(
                f"setting {name} holds a {type(value).__name__}, which cannot be saved with the run: use a number, a "
                "text, a function or frozen dataclass of a module, or tuples of these"
            ) from None


_COMPONENTS = ("method", "feedback", "curriculum")


def _subject(name: str) -> str:
    return name if name in _COMPONENTS else f"setting {name}"


def _check_importable(value: Any, name: str) -> None:
    """Raise :class:`UserError` for a function or class that other processes cannot import by its name."""
    if _is_importable(qualified_name(value)):
        return
    kind = "a lambda" if value.__name__ == "<lambda>" else f"{value.__qualname__}, of a script or inside a function,"
    raise UserError(
        f"{_subject(name)} is {kind} which cannot be saved with the run: define it at the top of a module and import it"
    )


def from_config(config: Any) -> Any:
    """The inverse of :func:`to_config`. Raises :class:`UserError` if a class is missing or was changed."""
    match config:
        case list():
            return tuple(from_config(item) for item in config)
        case {"class": name}:
            return _build_object(name, {key: from_config(value) for key, value in config.items() if key != "class"})
        case {"enum": name, "name": member}:
            return import_object(name)[member]
        case {"float": text}:
            return float(text)
        case {"dict": items}:
            return {key: from_config(value) for key, value in items.items()}
        case {"function": name}:
            return import_object(name)
    return config


def upgrade_config(config: Any) -> Any:
    """A configuration of an earlier version with today's names, still as JSON-able data."""
    match config:
        case list():
            return [upgrade_config(item) for item in config]
        case {"class": str(name)} if (renamed := renames.renamed_class(name)) is not None:
            if renamed.name is None:
                return None  # a part that did nothing
            fields = {renamed.fields.get(key, key): upgrade_config(value) for key, value in config.items()}
            return fields | {"class": renamed.name}
        case dict():
            current = {key: upgrade_config(value) for key, value in config.items()}
            if isinstance(options := current.get("options"), dict) and "class" not in options:  # a run's options
                names = renames.renamed_fields_of("thespis.options:Options")
                current["options"] = {names.get(key, key): value for key, value in options.items()}
            return current
    return config


def import_object(name: str) -> Any:
    """Import ``module:QualifiedName``. Raises :class:`UserError` if that fails, or is refused while a run is read."""
    module, _, qualified = name.partition(":")
    if not _is_importable(name):
        raise UserError(f"{name} is defined in a script or a function, out of reach of other processes: use a module")
    check_module(name)
    try:
        value: Any = importlib.import_module(module)
        for part in qualified.split("."):
            value = getattr(value, part)
            check_object(name, value)
    except (ImportError, AttributeError) as error:
        renamed = renames.renamed_class(name)
        if renamed is not None and renamed.name not in (None, name):
            return import_object(renamed.name)
        raise UserError(f"{name} cannot be imported ({error}): install the version that wrote it") from error
    return value


def _is_importable(name: str) -> bool:
    """Whether ``module:QualifiedName`` can be imported in another process, as far as the name tells."""
    module, _, qualified = name.partition(":")
    return module != "__main__" and "<locals>" not in qualified and "<lambda>" not in qualified


def qualified_name(cls: Any) -> str:
    """``module:QualifiedName`` of a class or function."""
    return f"{cls.__module__}:{cls.__qualname__}"


def apply_settings(obj: Any, settings: list[str], prefix: str = "") -> Any:
    """A copy of ``obj`` with settings such as ``learning_rate=3e-4`` or ``feed.batch_size=128``, applied in order.

    A name is a dotted path, or its last parts where they are unique (a whole path has priority).
    Text is parsed by the field's annotation; for a field that holds one of several classes it is
    a class's name. ``prefix`` stands before names in errors. Raises :class:`UserError` for an unknown or ambiguous
    name, or a value that does not fit or is out of range.
    """
    for setting in settings:
        name, equals, text = setting.partition("=")
        name = name.strip()
        if not equals or not name:
            raise UserError(f"setting {prefix + setting!r} is not of the form name=value (like learning_rate=3e-4)")
        obj = _replace_field(obj, _resolve_path(obj, name, prefix).split("."), text.strip(), prefix + name)
    return obj


def setting_texts(settings: Iterable[str] | Mapping[str, Any] | None) -> list[str]:
    """Settings as texts ``name=value``. Raises :class:`UserError` for an object, which has no text."""
    if not isinstance(settings, Mapping):
        return list(settings or [])
    for name, value in settings.items():
        if callable(value) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
            raise UserError(
                f"setting {name} is an object, not a text: give it to the method, as in thespis.PPO({name}=...)"
            )
    return [f"{name}={value}" for name, value in settings.items()]


def setting_paths(obj: Any, prefix: str = "") -> Iterator[str]:
    """The dotted paths of all fields of ``obj`` and of the objects in its fields."""
    for field in _fields(obj):
        value = getattr(obj, field.name)
        yield prefix + field.name
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield from setting_paths(value, f"{prefix}{field.name}.")


def _fields(obj: Any) -> list[dataclasses.Field]:
    return [field for field in dataclasses.fields(obj) if field.init]


def _build_object(name: str, values: dict[str, Any]) -> Any:
    renamed = renames.renamed_class(name)
    if renamed is not None and renamed.name is None:
        return None  # a part that did nothing
    cls = import_object(name)
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise UserError(f"{name} is no configuration class: install the version that wrote it")
    names = [field.name for field in _fields(cls)]
    if renamed is not None:
        values = {key if key in names else renamed.fields.get(key, key): value for key, value in values.items()}
    if unknown := [key for key in values if key not in names]:
        raise UserError(f"{name} has no {unknown[0]!r}, only {', '.join(names)}: install the version that wrote it")
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name} cannot be built from the configuration: {error}") from error


def _resolve_path(obj: Any, name: str, prefix: str = "") -> str:
    paths = list(setting_paths(obj))
    if name not in paths and (new := _renamed_path(obj, name)):
        renames.notice(f"setting {name} is now called {new}")
        name = new
    if name in paths:
        return name
    matches = [path for path in paths if path.endswith("." + name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UserError(f"setting {prefix + name!r} is ambiguous: write one of {', '.join(matches)}")
    _raise_unknown(obj, name, paths, prefix)


def _renamed_path(obj: Any, name: str) -> str | None:
    """The path of a setting by its name in an earlier version; ``None`` if there is none, or several."""
    paths = [path for path in _paths_with_old(obj, "", "") if path[1] == name or path[1].endswith("." + name)]
    exact = [new for new, old in paths if old == name and new != old]
    candidates = exact or [new for new, old in paths if new != old]
    return candidates[0] if len(candidates) == 1 else None


def _paths_with_old(obj: Any, prefix: str, old_prefix: str) -> Iterator[tuple[str, str]]:
    """Paths of all settings: pairs of today's name and the name in today's or an earlier version."""
    old_names: dict[str, list[str]] = {}
    for old, new in renames.renamed_fields(type(obj)).items():
        old_names.setdefault(new, []).append(old)
    for field in _fields(obj):
        value = getattr(obj, field.name)
        for old in (field.name, *old_names.get(field.name, ())):
            yield prefix + field.name, old_prefix + old
            if dataclasses.is_dataclass(value) and not isinstance(value, type):
                yield from _paths_with_old(value, f"{prefix}{field.name}.", f"{old_prefix}{old}.")


def _raise_unknown(obj: Any, name: str, paths: list[str], prefix: str) -> NoReturn:
    if hint := _foreign_hint(obj, name, paths):
        raise UserError(f"{type(obj).__name__} has no setting {prefix + name!r}: {hint}")
    last = {path.rsplit(".", 1)[-1]: path for path in reversed(paths)}
    near = difflib.get_close_matches(name, paths, 3, 0.5) + [
        last[word] for word in difflib.get_close_matches(name.rsplit(".", 1)[-1], last, 3, 0.5)
    ]
    known = f"it has {', '.join(prefix + path for path in paths) or 'none'}"
    hint = f"did you mean {' or '.join(prefix + path for path in dict.fromkeys(near))}?" if near else known
    raise UserError(f"{type(obj).__name__} has no setting {prefix + name!r}: {hint}")


def _foreign_hint(obj: Any, name: str, paths: list[str]) -> str:
    """What a setting of another library is called here, or why there is none; empty for an unknown name."""
    ours = foreign_names.translate(name, paths)
    if ours.startswith("--"):
        return f"it is an option of training, {ours} ({foreign_names.option_in_python(ours)} in Python)"
    if ours:
        doc = next(setting.doc for setting in describe_settings(obj) if setting.path == ours)
        return f"did you mean {ours}?{f' ({doc})' if doc else ''}"
    return foreign_names.reason_without(name)


def _replace_field(obj: Any, path: list[str], text: str, name: str) -> Any:
    head, *rest = path
    old = getattr(obj, head)
    if rest:
        new = _replace_field(old, rest, text, name)
    else:
        new = parse_setting(text, type_hints(type(obj)).get(head, Any), old, name)
        check_field(type(obj), head, new, name)
    return _raise_user_error(lambda: dataclasses.replace(obj, **{head: new}), f"{name}={text}")


def _raise_user_error(make: Callable[[], Any], setting: str) -> Any:
    try:
        return make()
    except (TypeError, ValueError) as error:
        raise UserError(f"setting {setting} is refused: {error}") from error
