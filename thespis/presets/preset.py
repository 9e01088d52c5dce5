"""Presets: tuned settings of a method for environments, read from TOML files.

A file has the name of its method and a table per preset::

    method = "ppo"

    [[preset]]
    envs = ["CartPole-v1"]  # Gymnasium's without a prefix; the first one names the preset: ppo/CartPole-v1
    num_envs = 8
    steps = 100_000
    source = "where the settings are from"
    date = 2026-01-31
    differences = "what the source does and this preset does not"
    [preset.settings]
    discount = 0.98
    learning_rate = {linear_from = 1e-3}      # falls linearly to 0 over the run
    epsilon_decay_updates = {fraction = 0.1}  # updates in the first tenth of the run

``num_envs``, ``steps``, ``date`` and ``differences`` may be missing. A preset with a ``name`` of its own is used only
when it is asked for.
"""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import functools
import json
from pathlib import Path
from typing import Any

from thespis.core.errors import UserError
from thespis.envs.registry import resolve_env
from thespis.runs.toml_files import SUFFIX, flatten_table, read_toml
from thespis.runtime import disk

AUTO, NONE = "auto", "none"
FILES = Path(__file__).parent
MATCHED_LIBRARIES = ("gymnax", "gymnasium", "envpool")
"""Libraries that call an environment of Gymnasium by the same name."""

_ALIASES = {"num_envs": int, "steps": int, "source": str, "differences": str, "name": str}


@dataclasses.dataclass(frozen=True)
class Preset:
    """Tuned settings of one method for some environments."""

    name: str
    method: str
    envs: tuple[str, ...]
    settings: dict[str, Any]
    """Values by name of a setting; ``{"linear_from": x}`` and ``{"fraction": x}`` depend on the run's length."""
    source: str
    num_envs: int | None = None
    """Environments per seed; ``None``: the method's number."""
    steps: int | None = None
    """Environment steps per seed; ``None``: the usual number."""
    date: str = ""
    differences: str = ""
    """What the source does and this preset does not; empty: nothing that is known."""
    is_default: bool = True
    """Whether a run of the method on one of the environments uses it without being asked."""


def find_preset(preset: str | Path | None, method: str, env: Any) -> Preset | None:
    """The preset of a run of ``method`` on ``env``; ``None`` if it has none.

    ``preset``: ``auto`` (the one for this method and environment, if there is one), ``none`` or ``None``, the name of
    one (``ppo/CartPole-v1``), or a TOML file. A file with several presets needs one for ``env``.

    Raises :class:`UserError` for an unknown preset, an unreadable file, or a preset of another method.
    """
    if preset is None or preset == NONE:
        return None
    if preset == AUTO:
        presets = [p for p in method_presets(method) if p.is_default]
        return _matching(presets, env) if presets else None
    if isinstance(preset, Path) or preset.endswith(SUFFIX):
        presets = read_presets(Path(preset))
        selected = presets[0] if len(presets) == 1 else _matching(presets, env)
        if selected is None:
            names = ", ".join(name for p in presets for name in p.envs)
            raise UserError(f"{preset} has presets for {names} and none for {env}")
    else:
        selected = named_preset(preset)
    if selected.method != method:
        raise UserError(
            f"preset {preset} is for {selected.method}, not for {method}: train {selected.method}, or leave it out"
        )
    return selected


def all_presets() -> list[Preset]:
    """All presets of this package, by method."""
    return [preset for path in sorted(FILES.glob(f"*{SUFFIX}")) for preset in read_presets(path)]


def method_presets(method: str) -> list[Preset]:
    """The presets of this package for ``method``."""
    path = FILES / f"{method}{SUFFIX}"
    return read_presets(path) if path.is_file() else []


@functools.cache
def read_presets(path: Path) -> list[Preset]:
    """The presets in a file. Raises :class:`UserError` for a file that cannot be read, or that is no preset file."""
    content = read_toml(path, "preset")
    tables = content.get("preset")
    if not isinstance(content.get("method"), str) or not isinstance(tables, list) or not tables:
        raise UserError(f'preset file {path} needs method = "NAME" and at least one [[preset]]')
    return [_read_table(path, content["method"], table) for table in tables]


def _read_table(path: Path, method: str, table: dict[str, Any]) -> Preset:
    envs, settings = table.get("envs"), table.get("settings", {})
    if not isinstance(envs, list) or not envs or not isinstance(settings, dict):
        raise UserError(f'preset file {path}: a [[preset]] needs envs = ["NAME"] and [preset.settings]')
    known = {"envs", "settings", "date", *_ALIASES}
    if unknown := sorted(set(table) - known):
        raise UserError(f"preset file {path}: unknown entry {unknown[0]!r}; it is one of {', '.join(sorted(known))}")
    for entry, kind in _ALIASES.items():
        if entry in table and not isinstance(table[entry], kind):
            raise UserError(f"preset file {path}: {entry} = {table[entry]!r} is no {kind.__name__}")
    name = f"{method}/{table.get('name', envs[0])}"
    return Preset(
        name=name,
        method=method,
        envs=tuple(envs),
        settings=flatten_table(settings, is_value=lambda value: set(value) <= {"linear_from", "fraction"}),
        source=table.get("source", str(path)),
        num_envs=table.get("num_envs"),
        steps=table.get("steps"),
        date=str(table.get("date", "")),
        differences=table.get("differences", ""),
        is_default="name" not in table,
    )


def _matching(presets: list[Preset], env: Any) -> Preset | None:
    """The first preset for an environment that is given by its name, whatever its arguments are."""
    if not isinstance(env, str):
        return None
    name = resolve_env(env).name.partition("?")[0]
    library, _, rest = name.partition(":")
    name = rest if library in MATCHED_LIBRARIES else name
    return next((preset for preset in presets if name in preset.envs), None)


def named_preset(name: str) -> Preset:
    """The preset of this package with this name. Raises :class:`UserError` for an unknown one."""
    presets = {preset.name: preset for preset in all_presets()}
    if name not in presets:
        near = difflib.get_close_matches(name, presets, 3, 0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else "thespis list presets shows all"
        raise UserError(f"unknown preset {name!r}: {hint} (or auto, none, or a file ending in {SUFFIX})")
    return presets[name]


def write_preset(path: Path, preset: Preset) -> None:
    """Write a file with one preset, which ``--preset FILE`` reads."""
    lines = [f"method = {_toml(preset.method)}", "", "[[preset]]", f"envs = {_toml(list(preset.envs))}"]
    optional = {"num_envs": preset.num_envs, "steps": preset.steps, "differences": preset.differences}
    lines += [f"{name} = {_toml(value)}" for name, value in optional.items() if value]
    lines += [f"source = {_toml(preset.source)}", f"date = {datetime.date.today().isoformat()}", "[preset.settings]"]
    lines += [f"{json.dumps(name)} = {_toml(value)}" for name, value in preset.settings.items()]
    with disk.as_user_error("a preset", path), disk.atomic_write(path) as file:
        file.write(("\n".join(lines) + "\n").encode())


def _toml(value: Any) -> str:
    """A value in TOML; text is written as in JSON, which is the same."""
    match value:
        case dict():
            return "{" + ", ".join(f"{name} = {_toml(item)}" for name, item in value.items()) + "}"
        case list() | tuple():
            return f"[{', '.join(map(_toml, value))}]"
        case bool() | str():
            return json.dumps(value)
        case _:
            return repr(value)
