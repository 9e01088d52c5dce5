"""Figure of a trial: for every measure and environment the seeds of each arm, their IQM and its interval."""

from __future__ import annotations

from typing import Any

from thespis.evaluation.comparison import GroupSummary
from thespis.evaluation.figure_style import SERIES_COLORS, render_figure, styled_figure
from thespis.evaluation.plots import draw_scores
from thespis.evidence.claims import SHOWN

MIN_DIFFERENCE = 1e-9
"""Smaller differences of parameters, including 0, are drawn at this value on the logarithmic axis."""


def plot_record(record: dict[str, Any], image_format: str = "svg") -> bytes:
    """The figure of a record as bytes of an ``svg`` or ``png``."""
    panels = [
        (measure["name"], env, _arm_summaries(measure, env))
        for measure in record["measures"]
        for env in record["declaration"]["envs"]
    ]
    has_several_envs = len(record["declaration"]["envs"]) > 1  # a single one is not named: arms may have their own
    exact = [finding for finding in record["findings"] if finding["interval"] is None]
    heights = [0.7 + 0.42 * len(summaries) for _, _, summaries in panels] + ([0.7 + 0.42 * len(exact)] if exact else [])
    with styled_figure((7.2, 0.5 + sum(heights))) as fig:
        fig.suptitle(f"{record['id']}: {record['verdict']}", x=0.01, ha="left", fontweight="bold")
        all_axes = fig.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes, (name, env, summaries) in zip(all_axes, panels, strict=False):
            draw_scores(axes, summaries)
            axes.set_xlabel(f"{name}, {env.partition(':')[2] or env}" if has_several_envs else name)
        if exact:
            _draw_parameter_differences(all_axes[-1], exact)
        return render_figure(fig, image_format)


def _draw_parameter_differences(axes: Any, findings: list[dict[str, Any]]) -> None:
    """Draw differences of parameters, a row per claim, on a logarithmic axis."""
    for row, finding in zip(range(len(findings) - 1, -1, -1), findings, strict=True):
        colour = SERIES_COLORS[0] if finding["verdict"] == SHOWN else SERIES_COLORS[1]
        axes.plot([max(finding["estimate"], MIN_DIFFERENCE)], [row], "o", color=colour)
        axes.annotate(
            f"{finding['verdict']}: {finding['claim']}", (0.01, row + 0.24), xycoords=("axes fraction", "data")
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlim(MIN_DIFFERENCE / 2, max(1.0, *(2 * finding["estimate"] for finding in findings)))
    axes.set_yticks([])
    axes.set_ylim(-0.5, len(findings) - 0.3)
    axes.set_xlabel("difference of parameters")
    axes.spines["left"].set_visible(False)


def _arm_summaries(measure: dict[str, Any], env: str) -> list[GroupSummary]:
    summaries = []
    for name, envs in measure["arms"].items():
        result = envs[env]
        interval = tuple(result["interval"]) if result["interval"] else None
        summaries.append(GroupSummary(name, tuple(result["scores"]), result["iqm"], interval))
    return summaries
