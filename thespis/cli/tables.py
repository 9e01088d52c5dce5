"""Tables that several commands print."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text


def summaries(title: str, what: str, rows: Iterable[tuple[str, str, str, str]]) -> Table:
    """Rows of name, IQM, interval and number of seeds, under ``title``; ``what`` is it that is named."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for head in (what, "IQM", "95% interval", "seeds"):
        table.add_column(head, justify="left" if head == what else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table
