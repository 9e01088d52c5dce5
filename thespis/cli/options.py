"""Types of options that several commands share."""

from __future__ import annotations

from typing import Annotated, Any

import tyro

from thespis.core.errors import UserError


def _whole(texts: list[str]) -> int:
    """``20000``, ``20_000`` or ``2e4``."""
    try:
        return int(texts[0])
    except ValueError:
        number = float(texts[0])
        if number != int(number):
            raise ValueError(f"{texts[0]} is not a whole number") from None
        return int(number)


_COUNT: Any = tyro.constructors.PrimitiveConstructorSpec(
    nargs=1,
    metavar="N",
    instance_from_str=_whole,
    is_instance=lambda value: isinstance(value, int),
    str_from_instance=lambda value: [str(value)],
)

Count = Annotated[int, _COUNT]
"""A whole number, also written ``2e4`` or ``20_000``."""

JsonFlag = Annotated[bool, tyro.conf.arg(help="Print the result as one JSON document on stdout, all else on stderr.")]
"""The option that every command with a result has."""


def optional(metavar: str) -> Any:
    """The look of an option that need not be given: what its text says of the default is enough."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


RunPath = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
"""The directory of a run."""

RunPaths = Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN ...")]
"""Directories of runs."""


def seeds(text: str) -> int | list[int]:
    """``3`` is three seeds, ``0,3,5`` are these. Raises :class:`UserError` for anything else."""
    try:
        listed = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise UserError(f"--seeds {text} does not fit: give how many (3) or which (0,3,5)") from None
    return listed if "," in text else listed[0]
