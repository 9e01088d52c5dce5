"""Results of checks, and the time budget that they share."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax

_SKIPPED = "skipped: "


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """Result of one check. ``passed`` is ``None`` for a skipped check or a warning."""

    name: str
    passed: bool | None
    message: str
    seconds: float = 0.0

    @property
    def skipped(self) -> bool:
        """Whether the check was not run."""
        return self.passed is None and self.message.startswith(_SKIPPED)


class CheckFailure(Exception):
    """Raised by a failed check; the text says what is wrong and what to do."""


class CheckWarning(Exception):
    """Raised for a warning that is not an error, or for a check that could not be run; the text says why."""


class TimeBudget:
    """A budget of time that runs from its creation."""

    def __init__(self, seconds: float | int):
        self._end = time.monotonic() + seconds

    @property
    def seconds_left(self) -> float:
        """Remaining seconds, not below 0."""
        return max(self._end - time.monotonic(), 0.0)


def run_check(name: str, function: Callable[..., str], *arguments: Any) -> CheckResult:
    """Run one check: ``function(*arguments)`` returns a message, or raises ``CheckFailure`` or ``CheckWarning``."""
    start = time.monotonic()
    try:
        passed, message = True, function(*arguments)
    except CheckFailure as failure:
        passed, message = False, str(failure)
    except CheckWarning as warning:
        passed, message = None, str(warning)
    return CheckResult(name, passed, message, time.monotonic() - start)


def skipped_check(name: str, reason: str) -> CheckResult:
    """Result of a check that was not run."""
    return CheckResult(name, None, f"{_SKIPPED}{reason}")


def failed_checks(checks: list[CheckResult]) -> list[CheckResult]:
    """The failed checks, in order."""
    return [check for check in checks if check.passed is False]


@contextlib.contextmanager
def fast_compilation(enabled: bool = True) -> Iterator[None]:
    """Context without most of XLA's optimisations, which halves compile time; for programs that run for a second.

    ``enabled=False`` restores normal compilation.
    """
    previous = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", enabled)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", previous)
