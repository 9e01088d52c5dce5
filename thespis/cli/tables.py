"""Tables that several commands print."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from thespis.arena.tournament import TournamentResult
    from thespis.evaluation.cross_play import MeanWithInterval
    from thespis.evaluation.ratings import Rating
    from thespis.evaluation.report_card import ReportCard
    from thespis.language.endpoint import EndpointUsage

_MAX_PLAYERS_WITH_INTERVALS = 6  # a larger matrix has no room for intervals


def ratings_table(standings: TournamentResult) -> Table:
    """Ratings, points and exploitability of players in ranking order."""
    from thespis.evaluation import formatting

    ratings = standings.ratings
    assert ratings is not None
    table = Table(title=f"Ratings on {standings.env}", title_justify="left", title_style="bold")
    has_exploitability = any(value is not None for value in standings.exploitability)
    headers = ("", "player", "rating", "95% interval", "points", *["exploitability"] * has_exploitability)
    for header in headers:
        table.add_column(header, justify="left" if header == "player" else "right", no_wrap=True)
    for rank, player in enumerate(standings.ranking, 1):
        rating, entries = ratings.players[player], standings.cross_play[player]
        points = [entry.points.value for opponent, entry in enumerate(entries) if opponent != player]
        share = sum(points) / len(points)
        cells = [str(rank), standings.names[player], _format_elo(rating.elo), _format_interval(rating), f"{share:.2f}"]
        exploitability_cells = (
            [formatting.format_number(standings.exploitability[player], 3)] if has_exploitability else []
        )
        table.add_row(*map(Text, cells + exploitability_cells))
    return table


def usage_line(usage: EndpointUsage) -> str:
    """What an endpoint was asked, and what that has cost."""
    cost = "" if usage.cost is None else f", cost {usage.cost:.6g}"
    requests = f"{usage.num_calls:,} requests, {usage.num_cached:,} responses from the cache"
    return f"{requests}, {usage.prompt_tokens:,} prompt and {usage.completion_tokens:,} completion tokens{cost}"


def report_card_tables(card: ReportCard) -> list[Table | Text]:
    """Report card of a conversation: shares of episodes and returns of seats, with intervals, and its warnings."""
    from thespis.evaluation import formatting

    table = Table(title="Report card", title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for name in ("", "mean", "95% interval"):
        table.add_column(name, justify="right" if name else "left")
    for row in card.rows():
        name, value, interval = formatting.format_card_row(row)
        table.add_row(Text(name), Text(value, style="bold"), Text(interval))
    return [table, *(Text(warning, style="yellow") for warning in card.warnings)]


def matrix_table(standings: TournamentResult, measure: str) -> Table:
    """Cross-play matrix of ``measure``, ``points`` or ``payoff``: the row player against the column player."""
    order = standings.ranking
    table = Table(title=f"Mean {measure} of the row against the column", title_justify="left", title_style="bold")
    table.add_column("", justify="right")
    table.add_column("player", no_wrap=True)
    for rank in range(1, len(order) + 1):
        table.add_column(str(rank), justify="right")
    for rank, player in enumerate(order, 1):
        means = [vars(standings.cross_play[player][opponent])[measure] for opponent in order]
        table.add_row(
            str(rank), Text(standings.names[player]), *(_matrix_cell(mean, measure, len(order)) for mean in means)
        )
    return table


def seat_advantage_line(standings: TournamentResult) -> str:
    """Rating advantage of the first seat over the second, or of each seat if there are more than two."""
    assert standings.ratings is not None
    seats = standings.ratings.seats
    if len(seats) != 2:
        return "seats: " + ", ".join(f"{i} {_format_elo(seat.elo)}" for i, seat in enumerate(seats))
    advantage = seats[0]
    interval = "too few seeds for an interval"
    if advantage.interval is not None:
        interval = f"95% interval {_format_elo(2 * advantage.interval[0])} to {_format_elo(2 * advantage.interval[1])}"
    return (
        f"moving from the second seat to the first is worth {_format_elo(2 * advantage.elo)} rating points ({interval})"
    )


def _matrix_cell(mean: MeanWithInterval, measure: str, num_players: int) -> Text:
    from thespis.evaluation import formatting

    if measure == "points":
        text, ends = Text(f"{mean.value:.2f}"), "–".join(f"{end:.2f}" for end in mean.interval or ())
    else:
        text, ends = Text(formatting.format_number(mean.value, 3)), formatting.format_interval(mean.interval)
    return (
        text.append(f"\n{ends}", style="dim")
        if mean.interval is not None and num_players <= _MAX_PLAYERS_WITH_INTERVALS
        else text
    )


def _format_interval(rating: Rating) -> str:
    if rating.interval is None:
        return "too few seeds"
    low, high = map(_format_elo, rating.interval)
    return {"above": f"{low} or more", "below": f"{high} or less"}.get(rating.unbounded_side or "", f"{low} to {high}")


def _format_elo(value: float) -> str:
    return (
        f"{value:+.0f}".replace("-", "−").replace("+0", "0") if abs(value) < 0.5 else f"{value:+.0f}".replace("-", "−")
    )


def held_out_table(metrics: dict[str, list[float]], data: str) -> Table:
    """Metrics on held-out data: the mean over seeds, and the value of each."""
    from thespis.evaluation import formatting

    table = Table(title=f"Held-out data: {data}", title_justify="left", title_style="bold")
    for header in ("metric", "mean", "seeds"):
        table.add_column(header, justify="left" if header == "metric" else "right", overflow="fold")
    for name, values in metrics.items():
        mean = formatting.format_number(sum(values) / len(values))
        table.add_row(name, Text(mean, style="bold"), Text(", ".join(map(formatting.format_number, values))))
    return table


def summary_table(title: str, name_header: str, rows: Iterable[tuple[str, str, str, str]]) -> Table:
    """A table of name, IQM, interval and number of seeds; ``name_header`` is the header of the first column."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for header in (name_header, "IQM", "95% interval", "seeds"):
        table.add_column(header, justify="left" if header == name_header else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table
