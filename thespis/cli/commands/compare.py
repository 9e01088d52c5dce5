"""``thespis compare``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

from rich.text import Text

from thespis.cli.options import JsonFlag, RunPaths, optional
from thespis.cli.output import Output
from thespis.cli.tables import summaries

if TYPE_CHECKING:
    from thespis.evaluation.comparison import Comparison


@dataclasses.dataclass(frozen=True)
class Compare:
    """Compare runs on one environment: is one better, and do the seeds suffice to say so?

    Runs of the same settings count as one group with the seeds of all of them.
    """

    directories: RunPaths
    """Directories of finished runs."""
    sampled: bool = False
    """Compare sampled instead of greedy play."""
    plot: Annotated[str | None, optional("FILE")] = None
    """Draw the comparison there, as .svg or .png."""
    json: JsonFlag = False

    def run(self, out: Output) -> int:
        """Compare and print."""
        import numpy as np

        from thespis.evaluation.comparison import compare, group_runs

        mode = "sampled" if self.sampled else "greedy"
        groups = group_runs(self.directories, mode)
        comparison = compare({group.name: np.array(group.scores) for group in groups})
        if self.plot:
            from thespis.evaluation.report import write_comparison_plot

            write_comparison_plot(groups, comparison, self.plot)
        _show(out, comparison, f"{mode.capitalize()} return on {groups[0].env}")
        if self.plot:
            out.say(f"plot: {self.plot}")
        out.result({"env": groups[0].env, "mode": mode, "plot": self.plot} | comparison.to_json())
        return 0


def _show(out: Output, comparison: Comparison, title: str) -> None:
    from thespis.evaluation import words

    rows = [(g.name, words.number(g.iqm), words.interval(g.interval), str(len(g.scores))) for g in comparison.groups]
    out.say(summaries(title, "group", rows))
    for pair in comparison.pairs:
        out.say(Text(f"{pair.sentence}.", style="bold"))
        span = words.interval(pair.interval)
        span = f"95% interval {span}" if pair.interval else f"{span} for an interval"
        out.say(Text(f"probability that a seed of {pair.a} beats one of {pair.b}: {pair.probability:.2f} ({span})"))
