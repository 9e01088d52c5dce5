"""Pictures of runs as SVG or PNG bytes: learning curves, final scores, calibration."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from thespis.evaluation.curve import FEW, Curve, band, filled, middle, thin
from thespis.evaluation.style import LINES, MUTED, figure, render

WIDE, NARROW = (8.4, 3.4), (4.0, 3.1)
"""Inches of a picture across a page and across a phone."""

SMALL, SQUARE = (2.7, 1.5), (4.6, 3.9)
"""Inches of one of several pictures side by side."""

_POINTS = 240  # along a line: more cannot be seen and makes the file large
_DOTS = 500


@runtime_checkable
class Scored(Protocol):
    """The final result of one group: a score per seed, their IQM, and its interval if there is one."""

    @property
    def name(self) -> str:
        """What the group is called."""
        ...

    @property
    def scores(self) -> Sequence[float]:
        """One score per training seed."""
        ...

    @property
    def iqm(self) -> float:
        """Their interquartile mean."""
        ...

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its interval; ``None`` with too few seeds."""
        ...


def curves(
    lines: Sequence[Curve],
    *,
    ylabel: str = "episode return",
    size: tuple[float, float] = WIDE,
    evaluations: Curve | None = None,
    seeds: bool = True,
    kind: str = "svg",
) -> bytes:
    """Learning curves: seeds thin, the IQM over seeds thick, a band for the seeds; ``size`` in inches.

    The band spans the middle half of the seeds, or all of them where there are fewer than five.
    ``evaluations`` adds the IQM of greedy evaluations as dots; ``seeds=False`` leaves the thin lines out.
    ``kind`` is ``svg`` or ``png``.
    """
    with figure(size) as fig:
        axes = fig.subplots()
        _draw_curves(axes, lines, seeds)
        if evaluations is not None:
            axes.plot(
                evaluations.step,
                middle(evaluations.values),
                "o",
                color=LINES[1],
                markersize=4,
                markeredgecolor="none",
                label=evaluations.label,
            )
        axes.set_ylabel(ylabel)
        if len(axes.get_legend_handles_labels()[1]) > 1:
            _legend(axes, room=round(size[0] * 11.5))
        return render(fig, kind)


def small(line: Curve, *, size: tuple[float, float] = SMALL, kind: str = "svg") -> bytes:
    """One metric as a small chart without a legend; its name is left to the page."""
    with figure(size) as fig:
        axes = fig.subplots()
        _draw_curves(axes, [dataclasses.replace(line, label="")], points=_POINTS // 2, width=1.4)
        axes.set_xlabel("")
        axes.tick_params(labelsize=7.5)
        axes.locator_params(nbins=4)
        return render(fig, kind)


def comparison(
    lines: Sequence[Curve],
    scores: Sequence[Scored],
    *,
    size: tuple[float, float] = (8.4, 3.6),
    kind: str = "svg",
) -> bytes:
    """Overlaid learning curves beside the final scores: every seed a dot, the IQM with its interval."""
    with figure(size) as fig:
        left, right = fig.subplots(1, 2, width_ratios=[3, 2])
        _draw_curves(left, lines, seeds=False)
        left.set_ylabel("training return")
        draw_scores(right, scores)
        if len(lines) > 1:
            _legend(left, room=60)
        return render(fig, kind)


def intervals(scores: Sequence[Scored], *, width: float = SQUARE[0], kind: str = "svg") -> bytes:
    """Final scores alone: every seed a dot, the IQM with its interval."""
    with figure((width, 0.6 + 0.5 * len(scores))) as fig:
        draw_scores(fig.subplots(), scores)
        return render(fig, kind)


def calibration(
    predicted: Float[np.ndarray, " step"],
    realised: Float[np.ndarray, " step"],
    *,
    size: tuple[float, float] = SQUARE,
    kind: str = "svg",
) -> bytes:
    """Realised discounted return over predicted value, one dot a step; the diagonal is a perfect critic."""
    known = np.flatnonzero(np.isfinite(predicted) & np.isfinite(realised))
    shown = known[np.linspace(0, len(known) - 1, min(len(known), _DOTS)).round().astype(int)]
    with figure(size) as fig:
        axes = fig.subplots()
        ends = np.concatenate([predicted[shown], realised[shown]])
        low, high = (ends.min(), ends.max()) if len(ends) else (0.0, 1.0)
        margin = 0.05 * (high - low) or 0.5
        limits = (low - margin, high + margin)
        axes.plot(limits, limits, color=MUTED, linewidth=1, dashes=(4, 3), label="predicted = realised")
        axes.plot(
            predicted[shown],
            realised[shown],
            "o",
            color=LINES[0],
            alpha=0.4,
            markersize=3.2,
            markeredgecolor="none",
        )
        axes.set(xlim=limits, ylim=limits, xlabel="predicted value", ylabel="realised discounted return")
        axes.locator_params(nbins=6)
        _legend(axes)
        return render(fig, kind)


def band_note(seeds: int) -> str:
    """What the lines and the band of a learning curve are, for its caption."""
    if seeds == 1:
        return "One training seed: how much seeds differ cannot be seen."
    band = "all seeds" if seeds < FEW else "the middle half of the seeds"
    return f"Thin: one training seed each. Thick: their interquartile mean. Band: {band}."


def _draw_curves(
    axes: Any, lines: Sequence[Curve], seeds: bool = True, points: int = _POINTS, width: float = 2.0
) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    for number, line in enumerate(lines):
        colour = LINES[number % len(LINES)]
        step, values = thin(line.step, filled(line.step, line.values), points)
        several = len(values) > 1
        for row in values if seeds and several else []:
            axes.plot(step, row, color=colour, linewidth=0.8, alpha=0.35)
        if several:
            axes.fill_between(step, *band(values), color=colour, alpha=0.13, linewidth=0)
        axes.plot(step, middle(values), color=colour, linewidth=width, label=line.label)
    axes.set_xlabel("environment steps per seed")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 2.5, 5, 10]))
    axes.margins(x=0.01)


def draw_scores(axes: Any, scores: Sequence[Scored]) -> None:
    """Every seed a dot, the IQM with its interval, a row per group from the top down."""
    for number, score in enumerate(scores):
        colour = LINES[number % len(LINES)]
        row = len(scores) - 1 - number  # the first one on top
        finite = np.array([s for s in score.scores if np.isfinite(s)])
        axes.plot(
            finite,
            np.full(len(finite), row),
            "o",
            color=colour,
            alpha=0.5,
            markersize=5,
            markeredgecolor="none",
        )
        if score.interval is not None:
            axes.plot(score.interval, [row, row], color=colour, linewidth=2.5)
        axes.plot([score.iqm], [row], "d", color=colour, markersize=8, markeredgecolor="none")
        axes.annotate(_short(score.name), (0.01, row + 0.24), xycoords=("axes fraction", "data"), color=colour)
    axes.set_yticks([])
    axes.set_ylim(-0.5, len(scores) - 0.3)
    axes.set_xlabel("return of the final policy")
    axes.spines["left"].set_visible(False)
    axes.locator_params(axis="x", nbins=5)
    axes.margins(x=0.08)


def _legend(axes: Any, room: int = 95) -> None:
    """A legend above the axes, in as many columns as fit into ``room`` characters."""
    handles, labels = axes.get_legend_handles_labels()
    labels = [_short(label) for label in labels]
    in_one_row = sum(len(label) + 8 for label in labels) <= room
    axes.legend(
        handles,
        labels,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=len(labels) if in_one_row else max(1, room // (max(map(len, labels)) + 8)),
        borderaxespad=0,
        borderpad=0.2,
        handlelength=1.6,
    )


def _short(label: str, limit: int = 44) -> str:
    return label if len(label) <= limit else label[: limit // 2 - 1] + "…" + label[-limit // 2 :]
