"""Figure of a paired trial: differences of pairs for every claim and environment, in standard deviations of seeds."""

from __future__ import annotations

from typing import Any

import numpy as np

from thespis.evaluation.figure_style import GRID_COLOR, MUTED_COLOR, SERIES_COLORS, render_figure, styled_figure
from thespis.evidence.claims import CONTRADICTED, SHOWN
from thespis.evidence.paired_verdict import LEVEL, LEVEL_MARGIN

_COLORS = {SHOWN: SERIES_COLORS[0], CONTRADICTED: SERIES_COLORS[1], LEVEL: SERIES_COLORS[2]}
_ROW_HEIGHT, _MAX_EFFECT = 0.44, 4.0


def plot_paired_record(record: dict[str, Any], image_format: str = "svg") -> bytes:
    """The figure of a paired trial's record as bytes of an ``svg`` or ``png``.

    One row for each claim and environment: a dot for every pair, the mean with its 95% interval, positive where the
    first arm is better. Within the grey band arms count as level. Differences beyond four standard deviations are drawn
    at the edge. Claims that are no comparisons have no row.
    """
    rows = [(finding, one) for finding in record["findings"] for one in finding["envs"]]
    several = len(record["declaration"]["envs"]) > 1
    with styled_figure((7.2, 1.1 + _ROW_HEIGHT * 1.5 * max(len(rows), 1))) as fig:
        fig.suptitle(f"{record['id']}: {record['verdict']}", x=0.01, ha="left", fontweight="bold")
        axes: Any = fig.subplots()
        axes.axvspan(-LEVEL_MARGIN, LEVEL_MARGIN, color=GRID_COLOR, zorder=0)
        axes.axvline(0, color=MUTED_COLOR, linewidth=0.7)
        for row, (finding, one) in zip(range(len(rows) - 1, -1, -1), rows, strict=True):
            _draw_row(axes, row, finding["verdict"], one)
            place = f", {one['env'].rpartition(':')[2]}" if several else ""
            axes.annotate(
                f"{finding['kind']}, {finding['verdict']}: {finding['claim']}{place}",
                (0.005, row + 0.36),
                xycoords=("axes fraction", "data"),
                fontsize=8,
            )
        axes.set_xlim(-_MAX_EFFECT - 0.1, _MAX_EFFECT + 0.1)
        axes.set_ylim(-0.5, len(rows) - 0.2)
        axes.set_yticks([])
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("difference of pairs in standard deviations of seeds; right: the first arm is better")
        return render_figure(fig, image_format)


def _draw_row(axes: Any, row: int, verdict: str, one: dict[str, Any]) -> None:
    color, differences = _COLORS.get(verdict, MUTED_COLOR), _in_deviations(one)
    jitter = 0.1 * np.sin(np.arange(len(differences)) * 2.4)
    limit = _MAX_EFFECT
    axes.plot(differences.clip(-limit, limit), row + jitter, "o", color=color, alpha=0.3, markersize=3.5, mew=0)
    if one["effect"] is not None:
        low, high = np.clip(one["effect_interval"], -limit, limit)
        axes.plot([low, high], [row, row], color=color, linewidth=2.2)
        axes.plot([np.clip(one["effect"], -limit, limit)], [row], "D", color=color, markersize=6)


def _in_deviations(one: dict[str, Any]) -> np.ndarray:
    """Differences of the pairs in standard deviations of seeds; zeros where no seed differs from another."""
    differences = np.asarray(one["differences"], np.float64)
    return differences / one["deviation"] if one["deviation"] > 0 else np.zeros(len(differences))
