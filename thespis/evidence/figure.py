"""A trial's picture: for every measure and environment the seeds of each arm, their IQM and its interval."""

from __future__ import annotations

from typing import Any

from thespis.evaluation.comparison import Summary
from thespis.evaluation.plots import draw_scores
from thespis.evaluation.style import LINES, figure, render
from thespis.evidence.claims import SHOWN

SMALLEST = 1e-9
"""Smaller differences, 0 among them, are drawn here."""


def draw(record: dict[str, Any], kind: str = "svg") -> bytes:
    """The picture of a record as ``svg`` or ``png``."""
    panels = [
        (measure["name"], env, _summaries(measure, env))
        for measure in record["measures"]
        for env in record["declaration"]["envs"]
    ]
    several = len(record["declaration"]["envs"]) > 1  # one is not named: arms may have worlds of their own
    exact = [finding for finding in record["findings"] if finding["interval"] is None]
    heights = [0.7 + 0.42 * len(summaries) for _, _, summaries in panels] + ([0.7 + 0.42 * len(exact)] if exact else [])
    with figure((7.2, 0.5 + sum(heights))) as fig:
        fig.suptitle(f"{record['id']}: {record['verdict']}", x=0.01, ha="left", fontweight="bold")
        every = fig.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes, (name, env, summaries) in zip(every, panels, strict=False):
            draw_scores(axes, summaries)
            axes.set_xlabel(f"{name}, {env.partition(':')[2] or env}" if several else name)
        if exact:
            _draw_exact(every[-1], exact)
        return render(fig, kind)


def _draw_exact(axes: Any, findings: list[dict[str, Any]]) -> None:
    """Differences of parameters, a row per sentence, on a scale of powers of ten."""
    for row, finding in zip(range(len(findings) - 1, -1, -1), findings, strict=True):
        colour = LINES[0] if finding["verdict"] == SHOWN else LINES[1]
        axes.plot([max(finding["estimate"], SMALLEST)], [row], "o", color=colour)
        axes.annotate(
            f"{finding['verdict']}: {finding['claim']}", (0.01, row + 0.24), xycoords=("axes fraction", "data")
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlim(SMALLEST / 2, max(1.0, *(2 * finding["estimate"] for finding in findings)))
    axes.set_yticks([])
    axes.set_ylim(-0.5, len(findings) - 0.3)
    axes.set_xlabel("difference of parameters")
    axes.spines["left"].set_visible(False)


def _summaries(measure: dict[str, Any], env: str) -> list[Summary]:
    made = []
    for name, envs in measure["arms"].items():
        found = envs[env]
        span = tuple(found["interval"]) if found["interval"] else None
        made.append(Summary(name, tuple(found["scores"]), found["iqm"], span))
    return made
