"""Spaces as JSON and back, so that a dataset says what its columns are."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from thespis.core.errors import UserError
from thespis.core.spaces import Box, Discrete, MultiDiscrete, Space, Text, Tree
from thespis.core.vocabulary import Vocabulary


def space_to_json(space: Space) -> dict[str, Any]:
    """The space as plain JSON. Infinite bounds become ``"inf"`` and ``"-inf"``: JSON has no infinity."""
    match space:
        case Box():
            return {
                "kind": "box",
                "shape": list(space.shape),
                "low": _bound_to_json(space.low),
                "high": _bound_to_json(space.high),
                "dtype": space.dtype,
            }
        case Discrete():
            return {"kind": "discrete", "n": space.n}
        case MultiDiscrete():
            return {"kind": "multi_discrete", "nvec": list(space.nvec)}
        case Text():
            told = dataclasses.asdict(space.vocabulary)
            sizes = {"kind": "text", "length": space.length, "news": space.news, "vocabulary": told}
            return sizes | ({"choices": [list(ids) for ids in space.choices]} if space.choices else {})
        case Tree():
            return {"kind": space.kind, "parts": [[name, space_to_json(part)] for name, part in space.parts]}


def space_from_json(data: dict[str, Any]) -> Space:
    """The inverse of :func:`space_to_json`. Raises ``UserError`` for what is not a space."""
    try:
        match data["kind"]:
            case "box":
                low, high = _bound_from_json(data["low"]), _bound_from_json(data["high"])
                return Box(tuple(data["shape"]), low, high, data["dtype"])
            case "discrete":
                return Discrete(int(data["n"]))
            case "multi_discrete":
                return MultiDiscrete(tuple(int(n) for n in data["nvec"]))
            case "text":
                told = data["vocabulary"]
                known = Vocabulary(int(told["size"]), tuple(told["stop"]), tuple(told["words"]), told["source"])
                choices = tuple(tuple(int(i) for i in ids) for ids in data.get("choices", ()))
                return Text(int(data["length"]), known, int(data["news"]), choices)
            case "dict" | "tuple" as kind:
                return Tree(tuple((name, space_from_json(part)) for name, part in data["parts"]), kind)
            case kind:
                kinds = "box, discrete, multi_discrete, text, dict, tuple"
                raise UserError(f"unknown kind of space {kind!r}; known are {kinds}")
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"not the description of a space: {data!r} ({type(error).__name__}: {error})") from None


def _bound_to_json(bound: float | tuple[float, ...]) -> Any:
    if isinstance(bound, tuple):
        return [_bound_to_json(b) for b in bound]
    return float(bound) if math.isfinite(bound) else str(float(bound))


def _bound_from_json(bound: Any) -> float | tuple[float, ...]:
    return tuple(float(b) for b in bound) if isinstance(bound, list) else float(bound)
