"""Figure of a paired trial: differences of pairs for every claim and environment, in standard deviations of seeds."""

from __future__ import annotations

import math
import textwrap
from typing import Any

import numpy as np

from thespis.evaluation.figure_style import GRID_COLOR, MUTED_COLOR, SERIES_COLORS, render_figure, styled_figure
from thespis.evaluation.formatting import short_env_name
from thespis.evidence.claims import CONTRADICTED, SHOWN
from thespis.evidence.paired_verdict import LEVEL, LEVEL_MARGIN

_COLORS = {SHOWN: SERIES_COLORS[0], CONTRADICTED: SERIES_COLORS[1], LEVEL: SERIES_COLORS[2]}
_LINE, _ROW = 0.34, 0.62
"""Height of a line of text and of a row of dots, in units of the vertical axis."""
_INCHES_PER_UNIT, _TEXT_WIDTH = 0.46, 92
_MIN_LIMIT, _MAX_LIMIT = 2.0, 8.0
"""Smallest and largest end of the horizontal axis, in standard deviations."""


def plot_paired_record(record: dict[str, Any], image_format: str = "svg") -> bytes:
    """The figure of a paired trial's record as bytes of an ``svg`` or ``png``.

    For each claim a row for each environment: a dot for every pair, the mean with its 95% interval, positive where the
    first arm is better. Within the grey band arms count as level. What lies beyond the axis is drawn at its end, a mean
    as an arrow with its value. Claims that compare no pairs have a line of text, with their estimate.
    """
    findings = [finding for finding in record["findings"] if finding["envs"] or finding["estimate"] is not None]
    titles = [_title(finding) for finding in findings]
    heights = [len(title) * _LINE + len(f["envs"]) * _ROW + 0.2 for title, f in zip(titles, findings, strict=True)]
    limit = _axis_limit(findings)
    with styled_figure((7.2, 1.1 + _INCHES_PER_UNIT * sum(heights))) as fig:
        fig.suptitle(f"{record['id']}: {record['verdict']}", x=0.01, ha="left", fontweight="bold")
        axes: Any = fig.subplots()
        axes.axvspan(-LEVEL_MARGIN, LEVEL_MARGIN, color=GRID_COLOR, zorder=0)
        axes.axvline(0, color=MUTED_COLOR, linewidth=0.7)
        top, ticks = 0.0, []
        for title, finding in zip(titles, findings, strict=True):
            text = axes.annotate(
                "\n".join(title), (0.0, top - 0.05), xycoords=("axes fraction", "data"), va="top", fontsize=8
            )
            text.set_in_layout(False)
            top -= len(title) * _LINE
            for estimate in finding["envs"]:
                _draw_row(axes, top - _ROW / 2, finding["verdict"], estimate, limit)
                ticks.append((top - _ROW / 2, short_env_name(estimate["env"])))
                top -= _ROW
            top -= 0.2
        axes.set_xlim(-1.03 * limit, 1.03 * limit)
        axes.set_ylim(top, 0.1)
        axes.set_yticks([y for y, _ in ticks], [name for _, name in ticks])
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("difference of pairs in standard deviations of seeds; right: the first arm is better")
        return render_figure(fig, image_format)


def _title(finding: dict[str, Any]) -> list[str]:
    """Lines of a claim's title."""
    estimate = "" if finding["envs"] else f": {finding['estimate']:.3g}"
    return textwrap.wrap(f"{finding['kind']}, {finding['verdict']}: {finding['claim']}{estimate}", _TEXT_WIDTH)


def _axis_limit(findings: list[dict[str, Any]]) -> float:
    """The end of the axis: all intervals are within it, and nearly all pairs."""
    sizes = [_MIN_LIMIT]
    for estimate in (estimate for finding in findings for estimate in finding["envs"]):
        sizes += [abs(end) for end in estimate["effect_interval"] or ()]
        sizes.append(float(np.quantile(np.abs(_in_deviations(estimate)), 0.95)))
    return min(_MAX_LIMIT, float(math.ceil(max(sizes))))


def _draw_row(axes: Any, y: float, verdict: str, estimate: dict[str, Any], limit: float) -> None:
    color, differences = _COLORS.get(verdict, MUTED_COLOR), _in_deviations(estimate)
    jitter = 0.13 * np.sin(np.arange(len(differences)) * 2.4)
    axes.plot(differences.clip(-limit, limit), y + jitter, "o", color=color, alpha=0.3, markersize=3.5, mew=0)
    if estimate["effect"] is not None:
        low, high = np.clip(estimate["effect_interval"], -limit, limit)
        axes.plot([low, high], [y, y], color=color, linewidth=2.2)
        effect, shown = estimate["effect"], float(np.clip(estimate["effect"], -limit, limit))
        axes.plot([shown], [y], "D" if shown == effect else "<>"[effect > 0], color=color, markersize=6)
        if shown != effect:
            side = -1 if effect > 0 else 1
            axes.annotate(
                f"{effect:.1f}",
                (shown, y),
                (side * 8, 0),
                textcoords="offset points",
                ha="right" if effect > 0 else "left",
                va="center",
                fontsize=8,
                color=color,
            )


def _in_deviations(estimate: dict[str, Any]) -> np.ndarray:
    """Differences of the pairs in standard deviations of seeds; zeros where no seed differs from another."""
    differences = np.asarray(estimate["differences"], np.float64)
    return differences / estimate["deviation"] if estimate["deviation"] > 0 else np.zeros(len(differences))
