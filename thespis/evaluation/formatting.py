"""Formatting of numbers, durations and results as text, for the terminal and reports."""

from __future__ import annotations

import math
from typing import Any


def format_number(value: float | int | None, digits: int = 4) -> str:
    """A number as text: ``digits`` significant digits, a typographic minus sign, a dash if it is missing."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == int(value) and abs(value) < 10 ** max(digits, 6):
        text = f"{int(value):,}"
    elif abs(value) >= 10 ** (digits - 1) and abs(value) < 1e6:
        text = f"{value:,.0f}"
    else:
        text = f"{value:#.{digits}g}".rstrip(".")
    return text.replace("-", "−")


def format_count(count: int, noun: str) -> str:
    """A count with its noun: ``1 seed``, ``1,200 seeds``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def step_unit(config: dict[str, Any]) -> str:
    """What a step of the run of a run.json is: ``updates`` from data, ``turns`` in text, else ``environment steps``."""
    return config.get("step_unit") or ("updates" if config.get("loop") == "logged" else "environment steps")


def format_held_out(metrics: dict[str, list[float | None]], names: int = 3) -> str:
    """Metrics on held-out data, averaged over seeds, the most telling ones first: ``perplexity 3.2, accuracy 0.8``."""
    order = sorted(metrics, key=lambda name: (_telling_rank(name), name))
    means = {name: [x for x in metrics[name] if x is not None] for name in order[:names]}
    return ", ".join(f"{name} {format_number(sum(x) / len(x) if x else None)}" for name, x in means.items())


def _telling_rank(name: str) -> int:
    return HELD_OUT_SCORES.index(name) if name in HELD_OUT_SCORES else 10 - name.endswith("loss")


HELD_OUT_SCORES = ("accuracy", "perplexity", "negative_log_likelihood")
"""Metrics on held-out data that say most, where a method has them."""


def format_seeds(seeds: list[int]) -> str:
    """The number of training seeds and which they are: ``1 seed (7)``, ``3 seeds (0, 1, 2)``, ``10 seeds (0 to 9)``."""
    is_long_range = len(seeds) > 3 and seeds == list(range(seeds[0], seeds[0] + len(seeds)))
    which = f"{seeds[0]} to {seeds[-1]}" if is_long_range else ", ".join(map(str, seeds))
    return f"{format_count(len(seeds), 'seed')} ({which})"


def format_duration(seconds: float | int) -> str:
    """A duration: ``0.4 s``, ``12 s``, ``3 min 5 s``, ``2 h 10 min``, ``3 d 4 h``."""
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


def format_bytes(num_bytes: float | int) -> str:
    """Bytes in the largest fitting unit: ``812 MB``, ``1.4 GB``."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if num_bytes < 999.5:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} TB"


def format_interval(interval: list[float] | tuple[float, float] | None) -> str:
    """An interval, ``−158.2 to −147.0``, both to the same decimal; ``too few seeds`` if there is none."""
    if interval is None:
        return "too few seeds"
    largest = max(abs(bound) for bound in interval)
    if not 1 <= largest < 1e6:
        return f"{format_number(interval[0])} to {format_number(interval[1])}"
    decimals = max(0, 3 - int(math.log10(largest)))
    return f"{interval[0]:,.{decimals}f} to {interval[1]:,.{decimals}f}".replace("-", "−")


def format_scores(result: dict[str, Any]) -> str:
    """Results of greedy or sampled play in final.json as a phrase: IQM, number of seeds, interval."""
    seeds = format_count(result["seeds"], "training seed")
    bounds = result["interval"]
    spread = "too few seeds for an interval" if bounds is None else f"95% interval {format_interval(bounds)}"
    return f"IQM return {format_number(result['iqm'])} over {seeds} ({spread})"


def final_results(final: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Results in final.json with their names: greedy and sampled play, baselines, seats against random opponents."""
    named = [(name, final.get(name)) for name in ("greedy", "sampled", "random", "untrained")]
    seats = [(f"seat {i + 1} against random", result) for i, result in enumerate(final.get("vs_random") or [])]
    return [(name, result) for name, result in [*named, *seats] if result]


def format_final_scores(final: dict[str, Any]) -> str:
    """Content of final.json in one or two sentences; empty if there was no evaluation."""
    greedy, sampled = final.get("greedy"), final.get("sampled")
    parts = [f"Greedy play: {format_scores(greedy)}."] if greedy else []
    if sampled:
        parts.append(f"Sampled play: {format_number(sampled['iqm']) if greedy else format_scores(sampled)}.")
    return " ".join(parts)


def format_card_row(row: tuple[str, float | None, Any, bool]) -> tuple[str, str, str]:
    """A row of a report card as texts: its name, the mean, and the interval; shares as percentages."""
    name, mean, interval, is_share = row
    if mean is None:
        return name, "–", "no such episodes"
    if not is_share:
        return name, format_number(mean), format_interval(interval)
    bounds = f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f}%" if interval else format_interval(interval)
    return name, f"{100 * mean:.1f}%", bounds


def episode_lengths(result: dict[str, Any]) -> list[float]:
    """Episode lengths of greedy or sampled play in final.json, over all seeds."""
    return [float(x) for row in result.get("lengths") or [] for x in row if x is not None]


def short_env_name(env: str) -> str:
    """An environment's name without its library or module."""
    return env.rpartition(":")[2]
