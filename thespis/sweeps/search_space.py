"""Search spaces of settings: which settings of a method are tuned, and from which values.

The interval of a setting follows from its range (:mod:`thespis.runs.ranges`) and from its value without tuning: a
factor around it, on a logarithmic scale, for rates, coefficients and sizes; for shares near 1, such as a discount, a
factor around what is missing to 1. ``NAME=LOW..HIGH`` gives another interval.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from thespis.core.errors import UserError
from thespis.runs.config import setting_paths
from thespis.runs.ranges import Range, range_of

TUNED = """
    learning_rate *_learning_rate learning_rate.init_value *_learning_rate.init_value discount gae_lambda ent_coef
    clip_range num_epochs minibatch_size feed.num_steps feed.batch_size tau exploration_noise target_update_interval
    """
"""Settings, or patterns of them, that are tuned unless the user names some."""

RATES = "*learning_rate *.init_value *_coef tau"
FACTOR, RATE_FACTOR = 3.0, 10.0
"""The interval reaches so many times below and above the value without tuning, farther for rates and coefficients."""
SIZE_FACTOR = 4
"""The same for whole numbers, which are doubled or halved."""
SMALL_COEFFICIENTS = (1e-5, 0.1)
"""Interval of a coefficient that is 0 without tuning."""
NEAR_1 = 0.8
"""From this value on, a share is tuned by what is missing to 1."""
MAX_MISSING = 0.5


@dataclasses.dataclass(frozen=True)
class Dimension:
    """One tuned setting: its name and the numbers that it may take.

    ``scale``: ``linear``, ``log``, or ``complement``, which is logarithmic in ``1 - value``.
    """

    name: str
    low: float | int
    high: float | int
    scale: Literal["linear", "log", "complement"]
    is_int: bool = False

    def __str__(self) -> str:
        """The setting with its interval: ``learning_rate=3e-05..0.003 (log)``."""
        return f"{self.name}={self.low:g}..{self.high:g} ({self.scale})"

    def suggest(self, trial: Any) -> float | int:
        """A value from a trial of Optuna."""
        if self.scale == "complement":
            missing = trial.suggest_float(self.name, 1 - self.high, 1 - self.low, log=True)
            return 1 - missing
        if self.is_int:
            return 2 ** trial.suggest_int(self.name, *_exponents(self.low, self.high))
        return trial.suggest_float(self.name, self.low, self.high, log=self.scale == "log")


def search_space(method: Any, names: Sequence[str] = ()) -> list[Dimension]:
    """The dimensions of a configured method: the settings in ``names`` (with ``=LOW..HIGH`` or without), or the usual.

    Raises :class:`UserError` for a setting that is unknown or no number, or an interval outside its range.
    """
    paths = list(setting_paths(method))
    if not names:
        tuned_paths = [path for path in paths if any(fnmatch.fnmatchcase(path, pattern) for pattern in TUNED.split())]
        dimensions = [_dimension(method, path) for path in tuned_paths if _is_number(_value(method, path))]
        if not dimensions:
            raise UserError(f"{method.name} has none of the settings that are tuned by default: name some with --tune")
        return dimensions
    return [_named_dimension(method, text, paths) for text in names]


def _named_dimension(method: Any, text: str, paths: Iterable[str]) -> Dimension:
    name, equals, interval = text.partition("=")
    matches = [path for path in paths if path == name] or [path for path in paths if path.endswith(f".{name}")]
    if len(matches) != 1:
        problem = f"is ambiguous: write one of {', '.join(matches)}" if matches else "does not exist"
        raise UserError(f"--tune {name}: the setting {problem} (thespis list methods {method.name})")
    if not _is_number(_value(method, matches[0])):
        raise UserError(f"--tune {name}: only numbers are tuned, and its value is {_value(method, matches[0])}")
    usual = _dimension(method, matches[0])
    if not equals:
        return usual
    try:
        low, high = (float(part) for part in interval.split(".."))
    except ValueError:
        raise UserError(f"--tune {text}: an interval is written {name}=0.1..0.5") from None
    allowed = _range(method, matches[0])
    if not low < high or (allowed and not (low in allowed and high in allowed)):
        raise UserError(f"--tune {text}: the interval must grow and its ends be {allowed or 'numbers'}")
    scale = "linear" if usual.scale == "log" and low <= 0 else usual.scale
    if scale == "complement" and high >= 1:
        scale = "linear"
    if usual.is_int and (low < 1 or not operator.le(*_exponents(low, high))):
        raise UserError(f"--tune {text}: of whole numbers the powers of 2 are tried, and there is none")
    return Dimension(matches[0], low, high, scale, usual.is_int)


def _dimension(method: Any, path: str) -> Dimension:
    """The interval that follows from a setting's value and range."""
    value, allowed = _value(method, path), _range(method, path) or Range()
    if isinstance(value, int):
        low = max(2 ** math.floor(math.log2(max(value, 1) / SIZE_FACTOR)), allowed.low, 1)
        return Dimension(path, low, 2 ** math.ceil(math.log2(max(value, 1) * SIZE_FACTOR)), "log", True)
    value = float(value)
    if allowed.high == 1 and value >= NEAR_1:
        missing = max(1 - value, 1e-3)
        return Dimension(path, 1 - min(missing * RATE_FACTOR, MAX_MISSING), 1 - missing / RATE_FACTOR, "complement")
    if value <= 0:
        return Dimension(path, *SMALL_COEFFICIENTS, "log")
    factor = RATE_FACTOR if any(fnmatch.fnmatchcase(path, pattern) for pattern in RATES.split()) else FACTOR
    return Dimension(path, value / factor, min(value * factor, allowed.high), "log")


def _exponents(low: float | int, high: float | int) -> tuple[int, int]:
    """Exponents of the lowest and the highest power of 2 in an interval."""
    return math.ceil(math.log2(low)), math.floor(math.log2(high))


def _value(method: Any, path: str) -> Any:
    for part in path.split("."):
        method = getattr(method, part)
    return method


def _range(method: Any, path: str) -> Range | None:
    *parents, name = path.split(".")
    owner = _value(method, ".".join(parents)) if parents else method
    return range_of(type(owner), name)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
