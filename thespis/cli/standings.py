"""The standings of an arena as tables for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from thespis.arena.tournament import Standings
    from thespis.evaluation.crossplay import Mean
    from thespis.evaluation.ratings import Rating

_WIDE = 6  # players; for more, the matrix has no room for intervals


def ratings_table(standings: Standings) -> Table:
    """Players from the best one down."""
    from thespis.evaluation import words

    ratings = standings.ratings
    assert ratings is not None
    table = Table(title=f"Ratings on {standings.env}", title_justify="left", title_style="bold")
    exact = any(value is not None for value in standings.exploitability)
    heads = ("", "player", "rating", "95% interval", "points", *["exploitability"] * exact)
    for head in heads:
        table.add_column(head, justify="left" if head == "player" else "right", no_wrap=True)
    for rank, player in enumerate(standings.ranking, 1):
        rating, entries = ratings.players[player], standings.entries[player]
        others = [entry.points.value for other, entry in enumerate(entries) if other != player]
        share = sum(others) / len(others)
        cells = [str(rank), standings.names[player], _elo(rating.elo), _interval(rating), f"{share:.2f}"]
        told = [words.number(standings.exploitability[player], 3)] if exact else []
        table.add_row(*map(Text, cells + told))
    return table


def matrix_table(standings: Standings, what: str) -> Table:
    """What the row makes against the column, ``points`` or ``payoff``."""
    order = standings.ranking
    table = Table(title=f"Mean {what} of the row against the column", title_justify="left", title_style="bold")
    table.add_column("", justify="right")
    table.add_column("player", no_wrap=True)
    for rank in range(1, len(order) + 1):
        table.add_column(str(rank), justify="right")
    for rank, player in enumerate(order, 1):
        means = [vars(standings.entries[player][other])[what] for other in order]
        table.add_row(str(rank), Text(standings.names[player]), *(_cell(mean, what, len(order)) for mean in means))
    return table


def seats_line(standings: Standings) -> str:
    """What it is worth to sit somewhere."""
    assert standings.ratings is not None
    seats = standings.ratings.seats
    if len(seats) != 2:
        return "seats: " + ", ".join(f"{i} {_elo(seat.elo)}" for i, seat in enumerate(seats))
    first = seats[0]
    between = "too few seeds for an interval"
    if first.interval is not None:
        between = f"95% interval {_elo(2 * first.interval[0])} to {_elo(2 * first.interval[1])}"
    return (
        f"sitting in the first seat and not in the second is worth {_elo(2 * first.elo)} points of rating ({between})"
    )


def _cell(mean: Mean, what: str, players: int) -> Text:
    from thespis.evaluation import words

    if what == "points":
        text, ends = Text(f"{mean.value:.2f}"), "–".join(f"{end:.2f}" for end in mean.interval or ())
    else:
        text, ends = Text(words.number(mean.value, 3)), words.interval(mean.interval)
    return text.append(f"\n{ends}", style="dim") if mean.interval is not None and players <= _WIDE else text


def _interval(rating: Rating) -> str:
    if rating.interval is None:
        return "too few seeds"
    low, high = map(_elo, rating.interval)
    return {"above": f"{low} or more", "below": f"{high} or less"}.get(rating.open or "", f"{low} to {high}")


def _elo(value: float) -> str:
    return (
        f"{value:+.0f}".replace("-", "−").replace("+0", "0") if abs(value) < 0.5 else f"{value:+.0f}".replace("-", "−")
    )
