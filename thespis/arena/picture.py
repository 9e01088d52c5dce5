"""The standings as a picture: ratings with intervals beside the matrix of points."""

from __future__ import annotations

from typing import Any

import numpy as np

from thespis.arena.tournament import Standings
from thespis.evaluation.style import INK, LINES, MUTED, figure, render
from thespis.evaluation.words import number

_LONG = 28  # characters of a name


def draw(standings: Standings, kind: str = "png") -> bytes:
    """Players from the best one down. Without ratings the matrix shows payoffs, and stands alone. ``png`` or ``svg``."""
    order, count = ranking(standings), len(standings.names)
    names = [_short(standings.names[i]) for i in order]
    height, square = 1.6 + 0.42 * count, 1.5 + 0.62 * count
    margin = 0.075 * max(map(len, names))
    if standings.ratings is None:
        with figure((square + margin + 1.0, height)) as fig:
            _matrix(fig, fig.subplots(), standings, order, names, "payoff")
            return render(fig, kind)
    with figure((4.2 + square + margin, height)) as fig:
        left, right = fig.subplots(1, 2, width_ratios=[4.2, square])
        _ratings(left, standings, order, names)
        _matrix(fig, right, standings, order, None, "points")
        return render(fig, kind)


def ranking(standings: Standings) -> list[int]:
    """Players from the best one down; in the order given where they are not rated."""
    ratings = standings.ratings
    return sorted(range(len(standings.names)), key=lambda i: -ratings.players[i].elo if ratings else i)


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


def _matrix(fig: Any, axes: Any, standings: Standings, order: list[int], names: list[str] | None, what: str) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    means = {(i, j): vars(standings.entries[i][j])[what] for i in order for j in order}
    values = np.array([[means[i, j].value for j in order] for i in order])
    low, high = (0.0, 1.0) if what == "points" else (values.min(), max(values.max(), values.min() + 1e-9))
    colours = LinearSegmentedColormap.from_list("points", [LINES[1], "#ffffff", LINES[0]])
    axes.imshow(values, cmap=colours, vmin=low, vmax=high, aspect="auto")
    for row, column in np.ndindex(values.shape):
        value, far = values[row, column], abs(values[row, column] - (low + high) / 2) > 0.35 * (high - low)
        axes.text(column, row, _cell(value, what), ha="center", va="center", color="#ffffff" if far else INK, fontsize=8)
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
