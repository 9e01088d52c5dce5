"""A trial's picture: for every measure and environment the seeds of each arm, their IQM and its interval."""

from __future__ import annotations

from typing import Any

from thespis.evaluation.comparison import Summary
from thespis.evaluation.plots import draw_scores
from thespis.evaluation.style import figure, render


def draw(record: dict[str, Any], kind: str = "svg") -> bytes:
    """The picture of a record as ``svg`` or ``png``; of a claim without numbers per seed, its sentence."""
    panels = [
        (measure["name"], env, _summaries(measure, env))
        for measure in record["measures"]
        for env in record["declaration"]["envs"]
    ]
    rows = max(1, len(panels))
    arms = len(record["declaration"]["arms"])
    with figure((6.4, 0.5 + rows * (0.7 + 0.42 * arms))) as fig:
        fig.suptitle(f"{record['id']}: {record['verdict']}", x=0.01, ha="left", fontweight="bold")
        if not panels:
            fig.text(0.02, 0.5, "\n".join(f"{f['claim']}: {f['estimate']:.3g}" for f in record["findings"]))
            return render(fig, kind)
        for axes, (name, env, summaries) in zip(fig.subplots(rows, 1, squeeze=False)[:, 0], panels, strict=True):
            draw_scores(axes, summaries)
            axes.set_xlabel(f"{name}, {env.partition(':')[2] or env}")
        return render(fig, kind)


def _summaries(measure: dict[str, Any], env: str) -> list[Summary]:
    made = []
    for name, envs in measure["arms"].items():
        found = envs[env]
        span = tuple(found["interval"]) if found["interval"] else None
        made.append(Summary(name, tuple(found["scores"]), found["iqm"], span))
    return made
