"""HTML reports of runs (``report.html``): results with their uncertainty, settings, and how to repeat the run.

Everything is read from run directories; missing parts are left out, so a run in progress can be reported. The page
needs no network and no JavaScript, and the same runs give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from thespis.core.errors import UserError
from thespis.evaluation import formatting, html_page, plots, run_view
from thespis.evaluation.comparison import GroupSummary, RunComparison, RunGroup, compare_groups, group_runs
from thespis.evaluation.figure_style import inline_svg
from thespis.evaluation.learning_curve import LearningCurve, in_readable_units
from thespis.evaluation.run_report import render_run, run_title
from thespis.evaluation.run_view import RunView
from thespis.evaluation.statistics import bootstrap_interval, iqm
from thespis.runtime import disk


def write_report(run_dirs: Sequence[str | Path], out: str | Path) -> Path:
    """Write one self-contained HTML page about one or several runs to ``out``, and return its path.

    Several runs are first compared, then shown one by one. Raises :class:`UserError` if a directory is not a run or
    ``out`` cannot be written.
    """
    if not run_dirs:
        raise UserError("a report needs at least one run directory")
    runs = [run_view.read_run(path) for path in run_dirs]
    if len(runs) == 1:
        heading, body = run_title(runs[0]), render_run(runs[0])
    else:
        heading = f"{formatting.format_count(len(runs), 'run')} compared"
        body = _overview_section(heading, runs) + "".join(
            html_page.box("run", render_run(run, number)) for number, run in enumerate(runs, 1)
        )
    version = runs[0].config.get("thespis", "")
    text = html_page.document(heading, body + html_page.footer(f"Thespis {version}".strip()))
    out = Path(out)
    with disk.as_user_error("the report", out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
        with disk.atomic_write(out) as file:
            file.write(text.encode())
    return out


def write_comparison_plot(groups: Sequence[RunGroup], comparison: RunComparison, out: str | Path) -> Path:
    """Write learning curves and final scores of all groups to ``out``, an ``.svg`` or ``.png``.

    Raises :class:`UserError` for another suffix or if ``out`` cannot be written.
    """
    out = Path(out)
    kind = out.suffix.lower().removeprefix(".")
    if kind not in ("svg", "png"):
        raise UserError(f"{out} has no supported image format: end it in .svg or .png")
    lines = [run_view.curve_over_runs([run_view.read_run(p) for p in g.runs], "episode_return", g.name) for g in groups]
    content = plots.plot_comparison(lines, comparison.groups, image_format=kind)
    with disk.as_user_error("the plot", out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
        with disk.atomic_write(out) as file:
            file.write(content)
    return out


def _overview_section(heading: str, runs: list[RunView]) -> str:
    """A table of all runs and the comparison of their groups."""
    run_table = html_page.table(
        ["run", "method", "environment", "steps", "seeds", "greedy IQM"],
        [
            [
                run.label,
                run.method_name,
                str(run.config.get("env") or ""),
                f"{run.step:,}",
                str(len(run.seeds)),
                _greedy_iqm(run),
            ]
            for run in runs
        ],
        numeric_columns=(3, 4, 5),
    )
    try:
        groups = group_runs([run.path for run in runs])
    except UserError as error:
        verdict = html_page.verdict_box([f"Not compared: {error}."], "waiting")
        return html_page.heading(heading) + verdict + html_page.section("Runs", run_table)
    return "".join(
        [
            html_page.heading(heading),
            html_page.paragraph(groups[0].env, "sub"),
            _comparison_section(groups, {run.path: run for run in runs}),
            html_page.section("Runs", run_table),
        ]
    )


def _comparison_section(groups: list[RunGroup], runs: dict[Path, RunView]) -> str:
    bounds = groups[0].bounds
    if len(groups) == 1:
        group, scores = groups[0], np.array(groups[0].scores)
        summaries: Sequence[GroupSummary] = [
            GroupSummary(group.name, group.scores, iqm(scores), bootstrap_interval(scores, bounds=bounds))
        ]
        seeds = formatting.format_count(len(group.scores), "seed")
        verdict = html_page.verdict_box([f"All runs have the same settings, {group.name}: {seeds} together."])
        pairs = ""
    else:
        scores = {group.name: np.array(group.scores) for group in groups}
        comparison = compare_groups(scores, bounds, {group.name: group.seeds for group in groups})
        summaries = comparison.groups
        verdict = html_page.verdict_box([f"{pair.sentence}." for pair in comparison.pairs])
        pairs = _pair_table(comparison)
    table = html_page.table(
        ["group", "IQM of greedy return", "95% interval over seeds", "seeds"],
        [
            [s.name, formatting.format_number(s.iqm), formatting.format_interval(s.interval), str(len(s.scores))]
            for s in summaries
        ],
        numeric_columns=(1, 2, 3),
    )
    return verdict + html_page.section("Comparison", _comparison_figures(groups, summaries, runs), table, pairs)


def _comparison_figures(groups: list[RunGroup], summaries: Sequence[GroupSummary], runs: dict[Path, RunView]) -> str:
    members = [[runs[Path(path)] for path in g.runs] for g in groups]

    def curves(over_time: bool) -> list[LearningCurve]:
        pairs = zip(members, groups, strict=True)
        return [run_view.curve_over_runs(m, "episode_return", g.name, over_time=over_time) for m, g in pairs]

    by_step = _comparison_figure(curves(over_time=False), summaries)
    timed = curves(over_time=True)
    if not all(np.isfinite(line.values).any() for line in timed):
        return by_step
    by_time = _comparison_figure(in_readable_units(timed), summaries)
    return html_page.switch("axis", [("over steps", by_step), ("over time", by_time)])


def _comparison_figure(lines: Sequence[LearningCurve], summaries: Sequence[GroupSummary]) -> str:
    wide = inline_svg(plots.plot_comparison(lines, summaries), "learning curves and final returns")
    narrow = inline_svg(
        plots.plot_learning_curves(lines, ylabel="training return", size=plots.NARROW_SIZE, show_seeds=False),
        "learning curves",
    )
    narrow += inline_svg(plots.plot_intervals(summaries, width=plots.NARROW_SIZE[0]), "final returns")
    note = "Curves: IQM and band of the seeds. Dots: one training seed each. Diamond: IQM. Bar: 95% interval."
    return html_page.figure(wide, narrow, note=note)


def _pair_table(comparison: RunComparison) -> str:
    rows = []
    for p in comparison.pairs:
        difference = "too few equal seeds"
        if p.paired is not None:
            interval = formatting.format_interval(p.paired.interval)
            difference = f"{formatting.format_number(p.paired.mean)} ({interval})"
        probability = f"{p.probability:.2f} ({_format_share_interval(p.interval)})"
        rows.append([f"{p.a} over {p.b}", probability, difference, p.verdict])
    headings = ["", "probability of improvement", "mean difference of equal seeds", "verdict"]
    return html_page.table(headings, rows, numeric_columns=(1, 2))


def _format_share_interval(interval: tuple[float, float] | None) -> str:
    return "too few seeds" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"


def _greedy_iqm(run: RunView) -> str:
    greedy = (run.final or {}).get("greedy")
    return formatting.format_number(greedy["iqm"]) if greedy else "–"
