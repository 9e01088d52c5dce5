"""Plots of tournament standings: ratings with intervals, and the cross-play matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from thespis.arena.tournament import TournamentResult
from thespis.evaluation.figure_style import MUTED_COLOR, SERIES_COLORS, TEXT_COLOR, render_figure, styled_figure
from thespis.evaluation.formatting import format_number

_MAX_NAME_CHARS = 28  # of a name


def plot_standings(standings: TournamentResult, image_format: str = "png") -> bytes:
    """Ratings (if any) and cross-play matrices of players in ranking order, as bytes of a ``png`` or ``svg``."""
    order, count = standings.ranking, len(standings.names)
    names = [_shorten_name(standings.names[i]) for i in order]
    height, square, margin = 1.6 + 0.42 * count, 1.5 + 0.62 * count, 0.075 * max(map(len, names))
    rated = standings.ratings is not None
    widths = ([4.2 + margin] if rated else []) + [square] * len(standings.quantities)
    with styled_figure((sum(widths) + (0 if rated else margin + 1), height)) as fig:
        panels = list(fig.subplots(1, len(widths), width_ratios=widths, squeeze=False)[0])
        if rated:
            _draw_ratings(panels.pop(0), standings, order, names)
        for axes, quantity in zip(panels, standings.quantities, strict=True):
            _draw_matrix(axes, standings, order, None if rated else names, quantity)
        return render_figure(fig, image_format)


def _draw_ratings(axes: Any, standings: TournamentResult, order: list[int], names: list[str]) -> None:
    assert standings.ratings is not None
    for row, player in enumerate(order):
        rating, colour = standings.ratings.players[player], SERIES_COLORS[0]
        if rating.interval is not None:
            axes.plot(rating.interval, [row, row], color=colour, linewidth=2.5)
        marker = {"above": ">", "below": "<"}.get(rating.unbounded_side or "", "d")
        axes.plot([rating.elo], [row], marker, color=colour, markersize=8, markeredgecolor="none")
        axes.annotate(
            format_number(round(rating.elo)),
            (rating.elo, row),
            (0, 7),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            bbox={"facecolor": "#ffffff", "edgecolor": "none", "pad": 0.8},
        )
    axes.axvline(0, color=MUTED_COLOR, linewidth=0.7, zorder=0.5)
    axes.set_yticks(range(len(order)), [f"{name}  {rank}" for rank, name in enumerate(names, 1)], color=TEXT_COLOR)
    axes.set_ylim(len(order) - 0.5, -0.65)
    axes.grid(axis="y", visible=False)
    axes.locator_params(axis="x", nbins=6)
    axes.margins(x=0.08)
    axes.set_xlabel(f"rating on {standings.env}, with 95% intervals")


def _draw_matrix(
    axes: Any, standings: TournamentResult, order: list[int], names: list[str] | None, quantity: str
) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    means = {(i, j): vars(standings.cross_play[i][j])[quantity] for i in order for j in order}
    values = np.array([[means[i, j].value for j in order] for i in order])
    largest = float(np.abs(values).max()) or 1.0
    low, high = (0.0, 1.0) if quantity == "points" else (-largest, largest)
    colours = LinearSegmentedColormap.from_list("points", [SERIES_COLORS[1], "#ffffff", SERIES_COLORS[0]])
    axes.imshow(values, cmap=colours, vmin=low, vmax=high, aspect="auto")
    for row, column in np.ndindex(values.shape):
        value, is_dark = values[row, column], abs(values[row, column] - (low + high) / 2) > 0.35 * (high - low)
        axes.text(
            column,
            row,
            _format_cell(float(value), quantity),
            ha="center",
            va="center",
            color="#ffffff" if is_dark else TEXT_COLOR,
            fontsize=8,
        )
    axes.set_xticks(range(len(order)), [str(rank) for rank in range(1, len(order) + 1)], color=TEXT_COLOR)
    ranks = [str(rank) for rank in range(1, len(order) + 1)]
    labels = ranks if names is None else [f"{name}  {rank}" for name, rank in zip(names, ranks, strict=True)]
    axes.set_yticks(range(len(order)), labels, color=TEXT_COLOR)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_xlabel(f"mean {quantity} of the row against the column")


def _format_cell(value: float, quantity: str) -> str:
    return f"{value:.2f}" if quantity == "points" else format_number(value, 3)


def _shorten_name(name: str) -> str:
    return name if len(name) <= _MAX_NAME_CHARS else "…" + name[1 - _MAX_NAME_CHARS :]
