"""Plots of runs as SVG or PNG bytes: learning curves, final scores, calibration."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from thespis.evaluation.figure_style import MUTED_COLOR, SERIES_COLORS, render_figure, styled_figure
from thespis.evaluation.learning_curve import (
    MIN_QUARTILE_SEEDS,
    STEPS_LABEL,
    UPDATES_LABEL,
    LearningCurve,
    downsample,
    interpolate_gaps,
    iqm_curve,
    quartile_band,
)

WIDE_SIZE, NARROW_SIZE = (8.4, 3.4), (4.0, 3.1)
"""Size in inches of a plot as wide as a page, and as wide as a phone."""

SMALL_SIZE, SQUARE_SIZE = (2.7, 1.5), (4.6, 3.9)
"""Size in inches of a small chart in a grid, and of a square plot."""

_MAX_POINTS = 240  # of a line: more are not visible and make the file large
_MAX_DOTS = 500


@runtime_checkable
class GroupScores(Protocol):
    """Final result of one group of runs: a score per seed, their IQM, and its interval if there is one."""

    @property
    def name(self) -> str:
        """The name of the group."""
        ...

    @property
    def scores(self) -> Sequence[float]:
        """One score per training seed."""
        ...

    @property
    def iqm(self) -> float:
        """Interquartile mean of the scores of the group."""
        ...

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its interval; ``None`` with too few seeds."""
        ...


def plot_learning_curves(
    curves: Sequence[LearningCurve],
    *,
    ylabel: str = "episode return",
    size: tuple[float, float] = WIDE_SIZE,
    evaluations: LearningCurve | None = None,
    show_seeds: bool = True,
    image_format: str = "svg",
) -> bytes:
    """Learning curves: a thin line per seed, a thick line for the IQM, a band for the seeds; ``size`` in inches.

    The band spans the middle half of the seeds, or all of them where there are fewer than five.
    ``evaluations`` adds the IQM of greedy evaluations as dots; ``show_seeds=False`` leaves the thin lines out.
    ``image_format`` is ``svg`` or ``png``.
    """
    with styled_figure(size) as fig:
        axes = fig.subplots()
        _draw_curves(axes, curves, show_seeds)
        if evaluations is not None:
            axes.plot(
                evaluations.steps,
                iqm_curve(evaluations.values),
                "o",
                color=SERIES_COLORS[1],
                markersize=4,
                markeredgecolor="none",
                label=evaluations.label,
            )
        axes.set_ylabel(ylabel)
        if len(axes.get_legend_handles_labels()[1]) > 1:
            _add_legend(axes, max_chars=round(size[0] * 11.5))
        return render_figure(fig, image_format)


def plot_small_chart(
    curve: LearningCurve, *, size: tuple[float, float] = SMALL_SIZE, image_format: str = "svg"
) -> bytes:
    """One metric as a small chart without a legend or title."""
    with styled_figure(size) as fig:
        axes = fig.subplots()
        _draw_curves(axes, [dataclasses.replace(curve, label="")], max_points=_MAX_POINTS // 2, line_width=1.4)
        axes.set_xlabel("")
        axes.tick_params(labelsize=7.5)
        axes.locator_params(nbins=4)
        return render_figure(fig, image_format)


def plot_comparison(
    curves: Sequence[LearningCurve],
    scores: Sequence[GroupScores],
    *,
    size: tuple[float, float] = (8.4, 3.6),
    image_format: str = "svg",
) -> bytes:
    """Overlaid learning curves and, to the right, final scores: a dot per seed, the IQM with its interval."""
    with styled_figure(size) as fig:
        left, right = fig.subplots(1, 2, width_ratios=[3, 2])
        _draw_curves(left, curves, show_seeds=False)
        left.set_ylabel("training return")
        draw_scores(right, scores)
        if len(curves) > 1:
            _add_legend(left, max_chars=60)
        return render_figure(fig, image_format)


def plot_intervals(scores: Sequence[GroupScores], *, width: float = SQUARE_SIZE[0], image_format: str = "svg") -> bytes:
    """Final scores alone: a dot per seed, the IQM with its interval."""
    with styled_figure((width, 0.6 + 0.5 * len(scores))) as fig:
        draw_scores(fig.subplots(), scores)
        return render_figure(fig, image_format)


def plot_calibration(
    predicted: Float[np.ndarray, " step"],
    realized: Float[np.ndarray, " step"],
    *,
    size: tuple[float, float] = SQUARE_SIZE,
    image_format: str = "svg",
) -> bytes:
    """Realised discounted return over predicted value, one dot per step; the diagonal is a perfect critic."""
    finite = np.flatnonzero(np.isfinite(predicted) & np.isfinite(realized))
    shown = finite[np.linspace(0, len(finite) - 1, min(len(finite), _MAX_DOTS)).round().astype(int)]
    with styled_figure(size) as fig:
        axes = fig.subplots()
        ends = np.concatenate([predicted[shown], realized[shown]])
        low, high = (ends.min(), ends.max()) if len(ends) else (0.0, 1.0)
        margin = 0.05 * (high - low) or 0.5
        limits = (low - margin, high + margin)
        axes.plot(limits, limits, color=MUTED_COLOR, linewidth=1, dashes=(4, 3), label="predicted = realised")
        axes.plot(
            predicted[shown],
            realized[shown],
            "o",
            color=SERIES_COLORS[0],
            alpha=0.4,
            markersize=3.2,
            markeredgecolor="none",
        )
        axes.set(xlim=limits, ylim=limits, xlabel="predicted value", ylabel="realised discounted return")
        axes.locator_params(nbins=6)
        _add_legend(axes)
        return render_figure(fig, image_format)


def band_caption(num_seeds: int) -> str:
    """Caption of a learning curve: the meaning of its lines and band."""
    if num_seeds == 1:
        return "One training seed: the spread over seeds is not known."
    band = "all seeds" if num_seeds < MIN_QUARTILE_SEEDS else "the middle half of the seeds"
    return f"Thin: one training seed each. Thick: their interquartile mean. Band: {band}."


def _draw_curves(
    axes: Any,
    curves: Sequence[LearningCurve],
    show_seeds: bool = True,
    max_points: int = _MAX_POINTS,
    line_width: float = 2.0,
) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    for number, line in enumerate(curves):
        colour = SERIES_COLORS[number % len(SERIES_COLORS)]
        step, values = downsample(line.steps, interpolate_gaps(line.steps, line.values), max_points)
        several = len(values) > 1
        for row in values if show_seeds and several else []:
            axes.plot(step, row, color=colour, linewidth=0.8, alpha=0.35)
        if several:
            axes.fill_between(step, *quartile_band(values), color=colour, alpha=0.13, linewidth=0)
        axes.plot(step, iqm_curve(values), color=colour, linewidth=line_width, label=line.label)
    axes.set_xlabel(curves[0].x_label if curves else "")
    if all(line.x_label in (STEPS_LABEL, UPDATES_LABEL) for line in curves):
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 2.5, 5, 10]))
    axes.margins(x=0.01)


def draw_scores(axes: Any, scores: Sequence[GroupScores]) -> None:
    """Draw final scores: a dot per seed, the IQM with its interval, a row per group from the top down."""
    for number, score in enumerate(scores):
        colour = SERIES_COLORS[number % len(SERIES_COLORS)]
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
        axes.annotate(_shorten_label(score.name), (0.01, row + 0.24), xycoords=("axes fraction", "data"), color=colour)
    axes.set_yticks([])
    axes.set_ylim(-0.5, len(scores) - 0.3)
    axes.set_xlabel("return of the final policy")
    axes.spines["left"].set_visible(False)
    axes.locator_params(axis="x", nbins=5)
    axes.margins(x=0.08)


def _add_legend(axes: Any, max_chars: int = 95) -> None:
    """A legend above the axes, in as many columns as fit into ``max_chars`` characters."""
    handles, labels = axes.get_legend_handles_labels()
    labels = [_shorten_label(label) for label in labels]
    in_one_row = sum(len(label) + 8 for label in labels) <= max_chars
    axes.legend(
        handles,
        labels,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=len(labels) if in_one_row else max(1, max_chars // (max(map(len, labels)) + 8)),
        borderaxespad=0,
        borderpad=0.2,
        handlelength=1.6,
    )


def _shorten_label(label: str, max_chars: int = 44) -> str:
    return label if len(label) <= max_chars else label[: max_chars // 2 - 1] + "…" + label[-max_chars // 2 :]
