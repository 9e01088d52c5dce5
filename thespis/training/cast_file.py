"""Casts as TOML files: a method for each seat of a conversation, and the environment that they play.

A file names the environment, and has a table of settings for each seat::

    env = "text:critiqued-derivation?max_critique_tokens=3"
    updates_per_turn = 10  # seats learn in turns; without it together

    [settings]  # of all seats
    model = "tiny"
    num_layers = 1

    [seats.solver]
    method = "frozen"

    [seats.critic]
    method = "grpo"
    learning_rate = 3e-4
    feed.group_size = 8

A method is one of ``thespis list methods``, ``frozen`` (a model that never learns), ``endpoint`` (one behind an
OpenAI-compatible address), or ``module:Class``. Shared settings are for the seats that have them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from thespis.core.contracts import HasSeats
from thespis.core.errors import UserError
from thespis.runs.config import apply_settings, setting_paths
from thespis.runs.toml_files import SUFFIX, flatten_table, read_toml, setting_text

TURNS = "updates_per_turn"
"""The setting of a cast that is not one of a seat."""
_ENTRIES = ("env", TURNS, "settings", "seats")


def is_cast_file(method: Any) -> bool:
    """Whether a method is given as the name of a TOML file, which describes a cast."""
    return isinstance(method, str | Path) and str(method).endswith(SUFFIX)


def cast_env(method: Any, env: Any) -> Any:
    """The environment of a run: the one that is given, else that of a cast's file."""
    return _read(method).get("env") if env is None and is_cast_file(method) else env


def read_cast(path: str | Path, make_method: Callable[[str], Any]) -> Any:
    """The cast in a file. ``make_method``: from a method's name to the method with its defaults.

    Raises:
        UserError: for a file that cannot be read, an unknown method or setting, and a seat without a method.
    """
    from thespis.learners.multi_agent.cast import Cast

    content = _read(path)
    shared, used, seats = flatten_table(content.get("settings", {})), set[str](), {}
    for name, table in content["seats"].items():
        settings = flatten_table(table)
        method = settings.pop("method", None)
        if not isinstance(method, str):
            raise UserError(f'cast file {path}: seat {name} needs a method, such as method = "frozen"')
        base = _make_seat(method, make_method)
        fitting = {key for key in shared if any(f".{part}".endswith(f".{key}") for part in setting_paths(base))}
        used |= fitting
        settings = {key: shared[key] for key in fitting} | settings
        seats[name] = apply_settings(base, [setting_text(*item) for item in settings.items()], f"{name}.")
    if unknown := sorted(set(shared) - used):
        raise UserError(f"cast file {path}: no seat has the setting {unknown[0]!r} of [settings]")
    try:
        return Cast(seats, content.get(TURNS, 0))
    except ValueError as error:
        raise UserError(f"cast file {path}: {error}") from error


def _make_seat(method: str, make_method: Callable[[str], Any]) -> Any:
    """A method with its defaults; of those that only play a seat, by the name that a file gives them."""
    seats = {seat.name: seat for seat in seat_classes()}
    return seats[method]() if method in seats else make_method(method)


def seat_classes() -> tuple[Any, ...]:
    """Classes of methods that only play a seat, and that a file calls by their names."""
    from thespis.learners.language.endpoint_model import EndpointModel
    from thespis.learners.language.frozen_model import FrozenModel

    return FrozenModel, EndpointModel


def apply_seat_settings(cast: HasSeats, settings: list[str]) -> Any:
    """The cast with settings that begin with the name of a seat, such as ``critic.learning_rate=1e-3``, or its own.

    Raises :class:`UserError` for a setting of no seat.
    """
    of_cast = [text for text in settings if text.partition("=")[0] == TURNS]
    cast = apply_settings(cast, of_cast)
    settings = [text for text in settings if text not in of_cast]
    prefixes = tuple(f"{name}." for name in cast.methods)
    for text in settings:
        if not text.startswith(prefixes):
            raise UserError(f"setting {text} of a cast is that of a seat: {' or '.join(p + text for p in prefixes)}")

    def change(name: str, method: Any) -> Any:
        own = [text.removeprefix(f"{name}.") for text in settings if text.startswith(f"{name}.")]
        return apply_settings(method, own, f"{name}.")

    return cast.map_seats(change)


def with_endpoint(cast: HasSeats, url: str | None, cache: str | None) -> Any:
    """The cast whose seats behind an endpoint have this address and cache, where they name none of their own.

    Raises :class:`UserError` if no seat needs the address.
    """
    from thespis.learners.language.endpoint_model import EndpointModel

    needing = [m for m in cast.methods.values() if isinstance(m, EndpointModel) and not m.url]
    if url and not needing:
        raise UserError('no seat of the cast is played by an endpoint without an address: method = "endpoint"')

    def change(name: str, method: Any) -> Any:
        if not isinstance(method, EndpointModel):
            return method
        return dataclasses.replace(method, url=method.url or url or "", cache=method.cache or cache)

    return cast.map_seats(change)


def _read(path: str | Path) -> dict[str, Any]:
    content = read_toml(path, "cast")
    if unknown := sorted(set(content) - set(_ENTRIES)):
        raise UserError(f"cast file {path}: unknown entry {unknown[0]!r}; it is one of {', '.join(_ENTRIES)}")
    seats = content.get("seats")
    if not isinstance(seats, dict) or not seats or not all(isinstance(table, dict) for table in seats.values()):
        raise UserError(f"cast file {path} needs a table [seats.NAME] for each seat (docs/casts.md)")
    if not isinstance(content.get("settings", {}), dict) or not isinstance(content.get("env", ""), str):
        raise UserError(f'cast file {path}: env = "NAME" is a text, [settings] a table')
    if type(content.get(TURNS, 0)) is not int:
        raise UserError(f"cast file {path}: {TURNS} is a number of updates, such as 10")
    return content
