"""Numbers, durations and verdicts in plain words, for the terminal and the report alike."""

from __future__ import annotations

import math
from typing import Any


def number(value: float | int | None, digits: int = 4) -> str:
    """A number for a reader: ``digits`` significant digits, a true minus sign, a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == int(value) and abs(value) < 10 ** max(digits, 6):
        text = f"{int(value):,}"
    elif abs(value) >= 10 ** (digits - 1) and abs(value) < 1e6:
        text = f"{value:,.0f}"
    else:
        text = f"{value:#.{digits}g}".rstrip(".")
    return text.replace("-", "−")


def count(amount: int, noun: str) -> str:
    """``1 seed``, ``1,200 seeds``."""
    return f"{amount:,} {noun}" + ("" if amount == 1 else "s")


def duration(seconds: float | int) -> str:
    """``0.4 s``, ``12 s``, ``3 min 5 s``, ``2 h 10 min``, ``3 d 4 h``."""
    if not math.isfinite(seconds):
        return "–"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, unit, below, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size} {unit}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"


def size(amount: float | int) -> str:
    """Bytes in the largest fitting unit: ``812 MB``, ``1.4 GB``."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 999.5:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} TB"


def interval(bounds: list[float] | tuple[float, float] | None) -> str:
    """``−158.2 to −147.0``, both to the same decimal, or that there are too few seeds for one."""
    if bounds is None:
        return "too few seeds"
    largest = max(abs(bound) for bound in bounds)
    if not 1 <= largest < 1e6:
        return f"{number(bounds[0])} to {number(bounds[1])}"
    decimals = max(0, 3 - int(math.log10(largest)))
    return f"{bounds[0]:,.{decimals}f} to {bounds[1]:,.{decimals}f}".replace("-", "−")


def play(result: dict[str, Any]) -> str:
    """One way of playing of a final.json in a phrase: the IQM, the number of seeds, the interval."""
    seeds = count(result["seeds"], "training seed")
    bounds = result["interval"]
    spread = "too few seeds for an interval" if bounds is None else f"95% interval {interval(bounds)}"
    return f"IQM return {number(result['iqm'])} over {seeds} ({spread})"


def verdict(final: dict[str, Any]) -> str:
    """What a final.json says, in a sentence or two; empty if nothing was played."""
    greedy, sampled = final.get("greedy"), final.get("sampled")
    parts = [f"Greedy play: {play(greedy)}."] if greedy else []
    if sampled:
        parts.append(f"Sampled play: {number(sampled['iqm']) if greedy else play(sampled)}.")
    return " ".join(parts)


def lengths(result: dict[str, Any]) -> list[float]:
    """All episode lengths of one way of playing of a final.json, over all seeds."""
    return [float(x) for row in result.get("lengths") or [] for x in row if x is not None]
