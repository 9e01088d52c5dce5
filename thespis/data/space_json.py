"""Spaces to JSON and back, for ``dataset.json``."""

from __future__ import annotations

import math
from typing import Any

from thespis.core.errors import UserError
from thespis.core.spaces import Box, CompositeSpace, Discrete, MultiDiscrete, Space, Text, Vocabulary


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
            source = space.vocabulary
            vocabulary = {
                "size": source.size,
                "stop": list(source.eos_tokens),
                "words": list(source.words),
                "source": source.tokenizer_dir,
            }
            sizes = {
                "kind": "text",
                "length": space.max_length,
                "news": space.max_env_tokens,
                "vocabulary": vocabulary,
            }
            return sizes | ({"choices": [list(tokens) for tokens in space.choices]} if space.choices else {})
        case CompositeSpace():
            return {"kind": space.kind, "parts": [[name, space_to_json(part)] for name, part in space.spaces]}


def space_from_json(data: dict[str, Any]) -> Space:
    """The inverse of :func:`space_to_json`. Raises ``UserError`` if ``data`` does not describe a space."""
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
                vocabulary_data = data["vocabulary"]
                vocabulary = Vocabulary(
                    int(vocabulary_data["size"]),
                    tuple(vocabulary_data["stop"]),
                    tuple(vocabulary_data["words"]),
                    vocabulary_data["source"],
                )
                choices = tuple(tuple(int(token) for token in tokens) for tokens in data.get("choices", ()))
                return Text(int(data["length"]), vocabulary, int(data["news"]), choices)
            case "dict" | "tuple" as kind:
                return CompositeSpace(tuple((name, space_from_json(part)) for name, part in data["parts"]), kind)
            case kind:
                kinds = "box, discrete, multi_discrete, text, dict, tuple"
                raise UserError(f"unknown kind of space {kind!r}; known are {kinds}")
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"not the description of a space: {data!r} ({type(error).__name__}: {error})") from None


def _bound_to_json(bound: float | int | tuple[float | int, ...]) -> Any:
    if isinstance(bound, tuple):
        return [_bound_to_json(b) for b in bound]
    return float(bound) if math.isfinite(bound) else str(float(bound))


def _bound_from_json(bound: Any) -> float | tuple[float, ...]:
    return tuple(float(b) for b in bound) if isinstance(bound, list) else float(bound)
