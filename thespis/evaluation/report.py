"""``report.html``: what a run did, how sure one may be of it, and how to do it again, in one file.

Everything is read from run directories; what is not there yet is left out, so a report of a run in progress
works. The page needs no network and no JavaScript, and the same runs give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from thespis.core import disk
from thespis.core.errors import UserError
from thespis.evaluation import page, plots, view, words
from thespis.evaluation.comparison import Comparison, Group, Summary, compare, group_runs
from thespis.evaluation.sections import run_page, title
from thespis.evaluation.statistics import interval, iqm
from thespis.evaluation.style import inline
from thespis.evaluation.view import RunView


def write_report(run_dirs: Sequence[str | Path], out: str | Path) -> Path:
    """Write one self-contained HTML page about one or several runs to ``out``, and return its path.

    Several runs are compared first, then shown one by one. Raises :class:`UserError` if a directory holds no
    run or ``out`` cannot be written.
    """
    if not run_dirs:
        raise UserError("a report needs at least one run directory")
    runs = [view.read(path) for path in run_dirs]
    if len(runs) == 1:
        heading, body = title(runs[0]), run_page(runs[0])
    else:
        heading = f"{words.count(len(runs), 'run')} compared"
        body = _overview(heading, runs) + "".join(f'<div class="run">{run_page(run)}</div>' for run in runs)
    version = runs[0].config.get("thespis", "")
    text = page.document(heading, f"{body}<footer>{page.escape(f'Thespis {version}'.strip())}</footer>")
    out = Path(out)
    with disk.one_line("the report", out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
        with disk.replacing(out) as file:
            file.write(text.encode())
    return out


def write_comparison_plot(groups: Sequence[Group], comparison: Comparison, out: str | Path) -> Path:
    """Write learning curves and final scores of all groups to ``out``, an ``.svg`` or ``.png``.

    Raises :class:`UserError` for another ending or if ``out`` cannot be written.
    """
    out = Path(out)
    kind = out.suffix.lower().removeprefix(".")
    if kind not in ("svg", "png"):
        raise UserError(f"{out} is not a picture this can write: end it in .svg or .png")
    lines = [view.joint_curve([view.read(p) for p in g.runs], "episode_return", g.name) for g in groups]
    content = plots.comparison(lines, comparison.groups, kind=kind)
    with disk.one_line("the plot", out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
        with disk.replacing(out) as file:
            file.write(content)
    return out


def _overview(heading: str, runs: list[RunView]) -> str:
    """All runs beside each other, and what can be said of their differences."""
    listed = page.table(
        ["run", "method", "environment", "steps", "seeds", "greedy IQM"],
        [
            [
                run.label,
                run.method,
                str(run.config.get("env") or ""),
                f"{run.step:,}",
                str(len(run.seeds)),
                _greedy(run),
            ]
            for run in runs
        ],
        numeric=(3, 4, 5),
    )
    try:
        groups = group_runs([run.path for run in runs])
    except UserError as error:
        verdict = page.verdict([f"Not compared: {error}."], "waiting")
        return f"<h1>{page.escape(heading)}</h1>{verdict}" + page.section("Runs", listed)
    return "".join(
        [
            f"<h1>{page.escape(heading)}</h1>",
            page.paragraph(groups[0].env, "sub"),
            _compared(groups, {run.path: run for run in runs}),
            page.section("Runs", listed),
        ]
    )


def _compared(groups: list[Group], runs: dict[Path, RunView]) -> str:
    if len(groups) == 1:
        only, scores = groups[0], np.array(groups[0].scores)
        summaries: Sequence[Summary] = [Summary(only.name, only.scores, iqm(scores), interval(scores))]
        seeds = words.count(len(only.scores), "seed")
        verdict = page.verdict([f"All runs are of one kind, {only.name}: {seeds} together."])
        pairs = ""
    else:
        comparison = compare({group.name: np.array(group.scores) for group in groups})
        summaries = comparison.groups
        verdict = page.verdict([f"{pair.sentence}." for pair in comparison.pairs])
        pairs = _pairs(comparison)
    table = page.table(
        ["group", "IQM of greedy return", "95% interval over seeds", "seeds"],
        [[s.name, words.number(s.iqm), words.interval(s.interval), str(len(s.scores))] for s in summaries],
        numeric=(1, 2, 3),
    )
    return verdict + page.section("Comparison", _pictures(groups, summaries, runs), table, pairs)


def _pictures(groups: list[Group], summaries: Sequence[Summary], runs: dict[Path, RunView]) -> str:
    lines = [view.joint_curve([runs[Path(path)] for path in g.runs], "episode_return", g.name) for g in groups]
    wide = inline(plots.comparison(lines, summaries), "learning curves and final returns")
    narrow = inline(plots.curves(lines, ylabel="training return", size=plots.NARROW, seeds=False), "learning curves")
    narrow += inline(plots.intervals(summaries, width=plots.NARROW[0]), "final returns")
    note = "Curves: IQM and band of the seeds. Dots: one training seed each. Diamond: IQM. Bar: 95% interval."
    return page.picture(wide, narrow, note=note)


def _pairs(comparison: Comparison) -> str:
    return page.table(
        ["", "probability of improvement", "95% interval", "verdict"],
        [[f"{p.a} over {p.b}", f"{p.probability:.2f}", _share(p.interval), p.verdict] for p in comparison.pairs],
        numeric=(1, 2),
    )


def _share(bounds: tuple[float, float] | None) -> str:
    return "too few seeds" if bounds is None else f"{bounds[0]:.2f} to {bounds[1]:.2f}"


def _greedy(run: RunView) -> str:
    greedy = (run.final or {}).get("greedy")
    return words.number(greedy["iqm"]) if greedy else "–"
