"""Figure of a suite: learning curves of its cells, a panel per environment, with the published results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from thespis.benchmark.suite import Cell
from thespis.evaluation.figure_style import SERIES_COLORS, render_figure, styled_figure
from thespis.evaluation.statistics import iqm

COLUMNS = 3


def plot_suite(results: Sequence[tuple[Cell, dict[str, Any]]]) -> bytes:
    """An SVG of the cells' learning curves: the IQM over seeds, a band from the worst to the best seed.

    A dashed line of the same colour is the published mean.
    """
    envs = list(dict.fromkeys(cell.env_name for cell, _ in results))
    methods = sorted({cell.method for cell, _ in results})
    colors = dict(zip(methods, SERIES_COLORS, strict=False))
    rows = -(-len(envs) // COLUMNS)
    with styled_figure((8.4, 2.3 * rows + 0.3)) as figure:
        panels = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
        for panel in panels[len(envs) :]:
            panel.set_axis_off()
        for env, panel in zip(envs, panels, strict=False):
            for cell, result in results:
                if cell.env_name == env:
                    _draw_curve(panel, cell, result, colors[cell.method])
            panel.set_title(env, loc="left", fontsize=9, fontweight="bold")
            panel.set_xlabel("environment steps")
        handles = [_line(color) for color in colors.values()]
        figure.legend(handles, methods, loc="outside lower left", ncols=len(methods))
        return render_figure(figure, "svg")


def _draw_curve(panel: Any, cell: Cell, result: dict[str, Any], color: str) -> None:
    steps = result["curve"]["steps"]
    scores = np.array(result["curve"]["scores"])  # [point, seed]
    panel.fill_between(steps, scores.min(axis=1), scores.max(axis=1), color=color, alpha=0.15, linewidth=0)
    panel.plot(steps, [iqm(point) for point in scores], color=color, linewidth=1.4)
    if cell.published:
        panel.axhline(cell.published.mean, color=color, linewidth=0.9, linestyle="--")


def _line(color: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=color)
