"""The standings as a picture: ratings with intervals beside the matrix of points."""

from __future__ import annotations

from typing import Any

import numpy as np

from thespis.arena.tournament import Standings
from thespis.evaluation.style import INK, LINES, MUTED, figure, render
from thespis.evaluation.words import number

_LONG = 28  # characters of a name


def draw(standings: Standings, kind: str = "png") -> bytes:
    """Players from the best one down, as ``png`` or ``svg``. Where nobody is rated the matrix stands alone."""
    order, count = standings.ranking, len(standings.names)
    names = [_short(standings.names[i]) for i in order]
    height, square, margin = 1.6 + 0.42 * count, 1.5 + 0.62 * count, 0.075 * max(map(len, names))
    rated = standings.ratings is not None
    widths = ([4.2 + margin] if rated else []) + [square] * len(standings.shown)
    with figure((sum(widths) + (0 if rated else margin + 1), height)) as fig:
        panels = list(fig.subplots(1, len(widths), width_ratios=widths, squeeze=False)[0])
        if rated:
            _ratings(panels.pop(0), standings, order, names)
        for axes, what in zip(panels, standings.shown, strict=True):
            _matrix(axes, standings, order, None if rated else names, what)
        return render(fig, kind)


def _ratings(axes: Any, standings: Standings, order: list[int], names: list[str]) -> None:
    assert standings.ratings is not None
    for row, player in enumerate(order):
        rating, colour = standings.ratings.players[player], LINES[0]
        if rating.interval is not None:
            axes.plot(rating.interval, [row, row], color=colour, linewidth=2.5)
        marker = {"above": ">", "below": "<"}.get(rating.open or "", "d")
        axes.plot([rating.elo], [row], marker, color=colour, markersize=8, markeredgecolor="none")
        axes.annotate(
            number(round(rating.elo)), (rating.elo, row), (0, 7), textcoords="offset points", ha="center", fontsize=8,
            bbox={"facecolor": "#ffffff", "edgecolor": "none", "pad": 0.8},
        )  # fmt: skip
    axes.axvline(0, color=MUTED, linewidth=0.7, zorder=0.5)
    axes.set_yticks(range(len(order)), [f"{name}  {rank}" for rank, name in enumerate(names, 1)], color=INK)
    axes.set_ylim(len(order) - 0.5, -0.65)
    axes.grid(axis="y", visible=False)
    axes.locator_params(axis="x", nbins=6)
    axes.margins(x=0.08)
    axes.set_xlabel(f"rating on {standings.env}, with 95% intervals")


def _matrix(axes: Any, standings: Standings, order: list[int], names: list[str] | None, what: str) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    means = {(i, j): vars(standings.entries[i][j])[what] for i in order for j in order}
    values = np.array([[means[i, j].value for j in order] for i in order])
    largest = float(np.abs(values).max()) or 1.0
    low, high = (0.0, 1.0) if what == "points" else (-largest, largest)
    colours = LinearSegmentedColormap.from_list("points", [LINES[1], "#ffffff", LINES[0]])
    axes.imshow(values, cmap=colours, vmin=low, vmax=high, aspect="auto")
    for row, column in np.ndindex(values.shape):
        value, far = values[row, column], abs(values[row, column] - (low + high) / 2) > 0.35 * (high - low)
        axes.text(
            column,
            row,
            _cell(float(value), what),
            ha="center",
            va="center",
            color="#ffffff" if far else INK,
            fontsize=8,
        )
    axes.set_xticks(range(len(order)), [str(rank) for rank in range(1, len(order) + 1)], color=INK)
    ranks = [str(rank) for rank in range(1, len(order) + 1)]
    labels = ranks if names is None else [f"{name}  {rank}" for name, rank in zip(names, ranks, strict=True)]
    axes.set_yticks(range(len(order)), labels, color=INK)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_xlabel(f"mean {what} of the row against the column")


def _cell(value: float, what: str) -> str:
    return f"{value:.2f}" if what == "points" else number(value, 3)


def _short(name: str) -> str:
    return name if len(name) <= _LONG else "…" + name[1 - _LONG :]
