"""Page of all suites' results in Markdown, with a figure per suite, generated from the result files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from thespis.benchmark.cell_run import is_current, reaches, read_result
from thespis.benchmark.equal_steps import compare_at_equal_steps
from thespis.benchmark.figure import plot_suite
from thespis.benchmark.suite import Cell, PublishedResult, Suite, load_suite, suite_names
from thespis.evaluation import formatting
from thespis.runtime import disk

PAGE, FIGURES = "results.md", "images"

_HEADER = """# Results on standard benchmarks

What the methods reach with their [presets](presets.md), next to published results. `thespis benchmark SUITE` trains the
cells of a suite, and `thespis benchmark SUITE --write docs` generates this page from the files in `results`
([how to](benchmarks.md)).

*Ours* is the interquartile mean over training seeds of each seed's mean return at the end of training, with its 95%
bootstrap interval over seeds. *Reached*: the interval, or the interquartile mean where there are too few seeds for one,
reaches the published mean or lies above it. The published mean is often that of a single training run, and its own
interval is not known. Times are those of all seeds together: wall-clock, on a machine that did other work at the same
time, and CPU.
"""


def write_page(results: Path, directory: Path) -> Path:
    """Write ``results.md`` and the figures of all suites below ``directory``; returns the page's path."""
    suites = [load_suite(name) for name in suite_names()]
    files = {PAGE: render_page(suites, results).encode()}
    for suite in suites:
        if cell_results := _stored_results(suite, results):
            files[f"{FIGURES}/{_figure_name(suite)}"] = plot_suite(cell_results)
    with disk.as_user_error("the page of results", directory):
        for name, content in files.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            with disk.atomic_write(directory / name) as file:
                file.write(content)
    return directory / PAGE


def render_page(suites: Sequence[Suite], results: Path) -> str:
    """The page in Markdown."""
    return "\n".join([_HEADER, *(_section(suite, results) for suite in suites)])


def _section(suite: Suite, results: Path) -> str:
    result_by_cell = dict(_stored_results(suite, results))
    current = [cell for cell, result in result_by_cell.items() if is_current(cell, result)]
    judged = [(result_by_cell[cell], cell.published) for cell in current if cell.published]
    num_reached = sum(reaches(result, published) for result, published in judged)
    lines = [f"## {suite.title}", "", suite.text.strip(), ""]
    lines += [f"- *{name}*: {source}" for name, source in suite.sources.items()]
    if current:
        missing = len(suite.cells) - len(current)
        rest = f"; {missing} of the suite are not trained yet." if missing else "."
        share = f"**{num_reached} of {len(judged)} trained cells reach the published result**"
        lines += ["", share + rest] if judged else []
        lines += ["", f"![learning curves](images/{_figure_name(suite)})", ""]
        lines += ["| cell | steps | ours | 95% interval | published | reached | seeds | time | CPU time |"]
        lines += ["| --- | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: |"]
        lines += [_row(cell, result_by_cell[cell]) for cell in current]
        notes = [f"- `{cell.name}`: {cell.note}" for cell in current if cell.note]
        lines += ["", *notes] if notes else []
        lines += _comparison_lines(suite, {cell: result_by_cell[cell] for cell in current})
    untrained = [f"`{cell.name}`" for cell in suite.cells if cell not in current]
    lines += ["", f"Not trained yet, or with other settings: {', '.join(untrained)}."] if untrained else []
    return "\n".join([*lines, ""])


def _comparison_lines(suite: Suite, result_by_cell: Mapping[Cell, dict[str, Any]]) -> list[str]:
    """Table of the comparisons whose cells both have a result."""
    lines = ["", "Methods at equal steps, seed by seed: mean difference of returns with Student's 95% interval.", ""]
    lines += ["| environment | steps | method | baseline | difference | 95% interval | better in |"]
    lines += ["| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    rows = []
    for comparison in suite.comparisons:
        method, baseline = suite.compared_cells(comparison)
        if method in result_by_cell and baseline in result_by_cell:
            pairs = compare_at_equal_steps(result_by_cell[method], result_by_cell[baseline])
            number = formatting.format_number
            values = (
                f"`{comparison.env}`",
                f"{pairs.step:,}",
                f"`{comparison.method}` {number(pairs.mean)}",
                f"`{comparison.baseline}` {number(pairs.baseline_mean)}",
                number(pairs.difference),
                formatting.format_interval(pairs.interval),
                f"{pairs.num_better} of {pairs.num_pairs} pairs",
            )
            rows.append(f"| {' | '.join(values)} |")
    return [*lines, *rows] if rows else []


def _row(cell: Cell, result: dict[str, Any]) -> str:
    values = (
        f"`{cell.name}`",
        f"{result['config']['steps']:,}",
        formatting.format_number(result["iqm"]),
        formatting.format_interval(result["interval"]),
        _published_text(cell.published) if cell.published else "",
        ("yes" if reaches(result, cell.published) else "no") if cell.published else "",
        str(len(result["config"]["seeds"])),
        formatting.format_duration(result["seconds"]),
        formatting.format_duration(result["cpu_seconds"]),
    )
    return f"| {' | '.join(values)} |"


def _published_text(published: PublishedResult) -> str:
    text = formatting.format_number(published.mean)
    text += f" ± {formatting.format_number(published.std)}" if published.std is not None else ""
    notes = [published.env] if published.env else []
    notes += [f"{published.steps:,} steps"] if published.steps else []
    return text + (f" ({', '.join(notes)})" if notes else "") + f" *{published.source}*"


def _stored_results(suite: Suite, results: Path) -> list[tuple[Cell, dict[str, Any]]]:
    """The cells that have a result, current or not, each with its result."""
    pairs = [(cell, read_result(results, suite, cell)) for cell in suite.cells]
    return [(cell, result) for cell, result in pairs if result is not None]


def _figure_name(suite: Suite) -> str:
    return f"results-{suite.name}.svg"
