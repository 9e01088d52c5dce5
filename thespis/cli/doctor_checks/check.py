"""What a check is, and the clock all checks share."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Check:
    """One thing the doctor looked at. ``passed`` is ``None`` for what was skipped or is only a warning."""

    name: str
    passed: bool | None
    message: str
    seconds: float = 0.0


class Failed(Exception):
    """A check failed; the text says what is wrong and what to do."""


class Warned(Exception):
    """Nothing is broken, but the text is worth knowing; also why a check could not be made."""


class Clock:
    """Seconds that are left of a budget."""

    def __init__(self, seconds: float | int):
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds left, not below 0."""
        return max(self._end - time.monotonic(), 0.0)


def look(name: str, question: Callable[..., str], *arguments: Any) -> Check:
    """Make one check: ``question(*arguments)`` returns what it found, or raises :class:`Failed` or :class:`Warned`."""
    began = time.monotonic()
    try:
        passed, message = True, question(*arguments)
    except Failed as failure:
        passed, message = False, str(failure)
    except Warned as warning:
        passed, message = None, str(warning)
    return Check(name, passed, message, time.monotonic() - began)


def skipped(name: str, why: str) -> Check:
    """A check that was not made."""
    return Check(name, None, f"skipped: {why}")


def failed(checks: list[Check]) -> list[Check]:
    """Those that failed, in order."""
    return [check for check in checks if check.passed is False]
