"""Options of a world behind its name: ``name?key=value&key=value``."""

from __future__ import annotations

import ast
from typing import Any

from thespis.core.errors import UserError


def options_in(name: str, text: str) -> dict[str, Any]:
    """What stands behind the question mark, as Python's numbers, flags, tuples and words.

    Raises:
        UserError: if a pair has no equals sign.
    """
    found = {}
    for pair in filter(None, text.split("&")):
        key, equals, value = pair.partition("=")
        if not equals:
            raise UserError(f"cannot read {pair!r} in {name}; options are ?key=value&key=value")
        try:
            found[key] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            found[key] = value
    return found
