"""Command ``thespis benchmark``: standard benchmarks against published results."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.table import Table
from rich.text import Text

from thespis.cli.options import JsonFlag, optional_arg
from thespis.cli.output import CommandOutput, print_stderr
from thespis.cli.train_session import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from thespis.benchmark.suite import Cell, Suite


@dataclasses.dataclass(frozen=True)
class BenchmarkCommand:
    """Train the cells of a standard benchmark, and compare them with published results.

    thespis benchmark classic --only ppo/CartPole-v1

    Finished cells are kept, so the same command continues after an interruption.
    """

    suite: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SUITE")]
    """The benchmark: classic, mujoco, minatar or atari."""
    only: Annotated[tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]], tyro.conf.arg(metavar="METHOD/ENV ..")] = ()
    """Only these cells; patterns such as 'ppo/*' are allowed."""
    list: bool = False
    """Print the cells and their results so far, and train nothing."""
    results: Annotated[str, tyro.conf.arg(metavar="DIR")] = "results"
    """The directory of the results, one JSON file per cell."""
    write: Annotated[str | None, optional_arg("DIR")] = None
    """Write the page of all suites' results, results.md, with its figures to this directory, and train nothing."""
    json: JsonFlag = False
    quiet: bool = False
    """No progress: only the results."""

    def run(self, out: CommandOutput) -> int:
        """Train the cells that have no result, or do what ``list`` or ``write`` ask for."""
        from thespis.benchmark.cell_run import CellInterrupted, is_current, read_result, train_cell
        from thespis.benchmark.suite import load_suite
        from thespis.cli.train_args import flatten_option
        from thespis.training.driver import DivergenceError

        suite, results = load_suite(self.suite), Path(self.results)
        cells = suite.select(flatten_option(self.only))
        if self.write:
            from thespis.benchmark.page import write_page

            out.print(f"written: {write_page(results, Path(self.write))}")
            return 0
        for cell in cells if not self.list else []:
            earlier = read_result(results, suite, cell)
            if earlier is not None and is_current(cell, earlier):
                continue
            out.print(Text(f"{cell.name}: {cell.seeds} seeds", style="bold"))
            try:
                with contextlib.ExitStack() as displays:
                    train_cell(suite, cell, results, self._listeners(out, displays))
            except CellInterrupted:
                print_stderr(f"{cell.name} was interrupted and is saved; run the same command to continue")
                return EXIT_INTERRUPTED
            except DivergenceError as error:
                print_stderr(f"{cell.name}: {error}")
        rows = [_result_row(suite, cell, results) for cell in cells]
        out.print(_results_table(suite, rows))
        out.write_result(rows)
        return 0

    def _listeners(self, out: CommandOutput, displays: contextlib.ExitStack) -> Any:
        from thespis.cli.progress import LiveDisplay

        return [] if self.quiet else [displays.enter_context(LiveDisplay(out.console))]


def _result_row(suite: Suite, cell: Cell, results: Path) -> dict[str, Any]:
    from thespis.benchmark.cell_run import is_current, reaches, read_result

    result = read_result(results, suite, cell)
    published = cell.published
    row: dict[str, Any] = {"cell": cell.name, "published": published and published.mean, "iqm": None, "interval": None}
    if result is None:
        return row | {"state": "not trained"}
    if not is_current(cell, result):
        state = "outdated"
    else:
        state = "trained" if published is None else "reached" if reaches(result, published) else "below"
    return row | {"iqm": result["iqm"], "interval": result["interval"], "state": state, "seconds": result["seconds"]}


def _results_table(suite: Suite, rows: list[dict[str, Any]]) -> Table:
    from thespis.evaluation import formatting

    table = Table(title=suite.title, title_justify="left", title_style="bold")
    for header in ("cell", "IQM", "95% interval", "published", ""):
        table.add_column(header, justify="left" if header in ("cell", "") else "right", overflow="fold")
    for row in rows:
        has_result = row["iqm"] is not None
        table.add_row(
            row["cell"],
            formatting.format_number(row["iqm"]) if has_result else "",
            formatting.format_interval(row["interval"]) if has_result else "",
            formatting.format_number(row["published"]) if row["published"] is not None else "",
            row["state"],
        )
    return table
