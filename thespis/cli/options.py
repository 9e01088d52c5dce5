"""Types of command-line options that several commands share."""

from __future__ import annotations

from typing import Annotated, Any

import tyro

from thespis.core.errors import UserError


def _parse_count(texts: list[str]) -> int:
    """Parse a count, written ``20000``, ``20_000`` or ``2e4``."""
    try:
        return int(texts[0])
    except ValueError:
        number = float(texts[0])
        if number != int(number):
            raise ValueError(f"{texts[0]} is not a whole number") from None
        return int(number)


_COUNT_SPEC: Any = tyro.constructors.PrimitiveConstructorSpec(
    nargs=1,
    metavar="N",
    instance_from_str=_parse_count,
    is_instance=lambda value: isinstance(value, int),
    str_from_instance=lambda value: [str(value)],
)

Count = Annotated[int, _COUNT_SPEC]
"""A whole number, also written ``2e4`` or ``20_000``."""

JsonFlag = Annotated[bool, tyro.conf.arg(help="Print the result as one JSON document on stdout, all else on stderr.")]
"""The ``--json`` option of commands with a result."""


def optional_arg(metavar: str) -> Any:
    """Help format of an optional option, whose help text describes the default."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


RunPath = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
"""The directory of a run."""

RunPaths = Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN ...")]
"""Directories of runs."""


CheckpointOption = Annotated[str, tyro.conf.arg(name="checkpoint", metavar="latest|best|STEP")]
"""The checkpoint of a run: the latest, the best by evaluation, or that of a step."""


TrustOption = Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="MODULE")]
"""The ``--trust`` option of commands that read runs. It can be repeated."""


def parse_seeds(text: str) -> int | list[int]:
    """Parse ``3`` (a number of seeds) or ``0,3,5`` (a list of seeds). Raises :class:`UserError` for other texts."""
    try:
        return [int(part) for part in text.split(",") if part.strip()] if "," in text else int(text)
    except ValueError:
        raise UserError(
            f"--seeds {text} is invalid: give a number of seeds (--seeds 3) or a list (--seeds 0,3,5); one particular "
            "seed is --seed 7"
        ) from None
