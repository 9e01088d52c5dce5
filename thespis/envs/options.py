"""Options in an environment's name: ``name?key=value&key=value``.

They are passed to whatever makes the environment: ``gymnasium.make``, gymnax, EnvPool, JaxMARL, PettingZoo, or the
user's class. As a part of the name they are recorded with it, so that everything that reads a run uses the same.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from thespis.core.errors import UserError

_ESCAPES = {"%": "%25", "&": "%26", "?": "%3F", ":": "%3A", "#": "%23"}


def split_options(name: str) -> tuple[str, dict[str, Any]]:
    """An environment's name without its options, and the options."""
    base, _, text = name.partition("?")
    return base, parse_options(name, text)


def parse_options(name: str, text: str) -> dict[str, Any]:
    """Parse the options after the question mark into Python numbers, booleans, tuples and strings.

    Raises:
        UserError: if a pair has no equals sign.
    """
    options = {}
    for pair in filter(None, text.split("&")):
        key, equals, value = pair.partition("=")
        if not equals:
            raise UserError(f"cannot read {pair!r} in {name}; options are ?key=value&key=value")
        options[key] = _parse_value(unquote(value))
    return options


def add_options(name: str, options: Mapping[str, Any] | Iterable[str]) -> str:
    """An environment's name with more options: a mapping, or texts ``key=value`` as on the command line.

    Options that the name has already are replaced.

    Raises:
        UserError: for a text without an equals sign, or a value that cannot be written as a Python literal.
    """
    if not isinstance(options, Mapping):
        options = dict(_parse_pair(text) for text in options)
    base, _, text = name.partition("?")
    old = [pair for pair in text.split("&") if pair and pair.partition("=")[0] not in options]
    pairs = [*old, *(f"{key}={_format_value(key, value)}" for key, value in options.items())]
    return f"{base}?{'&'.join(pairs)}" if pairs else base


def _parse_pair(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UserError(f"cannot read the option {text!r} of the environment; write key=value")
    return key, _parse_value(value)


def _parse_value(text: str) -> Any:
    if text in ("true", "false"):  # as in settings; a string would count as true
        return text == "true"
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def _format_value(key: str, value: Any) -> str:
    text = value if isinstance(value, str) and _parse_value(value) == value else repr(value)
    if not isinstance(value, str) and (isinstance(_parse_value(text), str) or _parse_value(text) != value):
        raise UserError(
            f"the option {key} of the environment is {value!r}, which run.json cannot hold: "
            "pass a function that makes the environment instead"
        )
    return "".join(_ESCAPES.get(character, character) for character in text)
