"""Options in an environment's name: ``name?key=value&key=value``."""

from __future__ import annotations

import ast
from typing import Any

from thespis.core.errors import UserError


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
        try:
            options[key] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            options[key] = value
    return options
