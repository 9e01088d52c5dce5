"""Command ``thespis compare``: statistical comparison of runs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

from rich.text import Text

from thespis.cli.options import JsonFlag, RunPaths, optional_arg
from thespis.cli.output import CommandOutput
from thespis.cli.tables import summary_table

if TYPE_CHECKING:
    from thespis.evaluation.comparison import RunComparison


@dataclasses.dataclass(frozen=True)
class CompareCommand:
    """Compare runs on one environment: is one better, and are there enough seeds to say so?

    Runs with the same settings form one group with all their seeds.
    """

    directories: RunPaths
    """Directories of finished runs."""
    sampled: bool = False
    """Compare sampled instead of greedy play."""
    plot: Annotated[str | None, optional_arg("FILE")] = None
    """Plot the comparison to this file, .svg or .png."""
    json: JsonFlag = False

    def run(self, out: CommandOutput) -> int:
        """Compare the runs and print the result."""
        import numpy as np

        from thespis.evaluation.comparison import compare_groups, group_runs

        mode = "sampled" if self.sampled else "greedy"
        groups = group_runs(self.directories, mode)
        bounds = groups[0].bounds if groups else None
        comparison = compare_groups(
            {group.name: np.array(group.scores) for group in groups},
            bounds,
            {group.name: group.seeds for group in groups},
        )
        if self.plot:
            from thespis.evaluation.report import write_comparison_plot

            write_comparison_plot(groups, comparison, self.plot)
        measure = groups[0].measure or f"{mode} return"
        _print_comparison(out, comparison, f"{measure[0].upper()}{measure[1:]} on {groups[0].env}")
        hint = f"for a plot: thespis compare {' '.join(self.directories)} --plot comparison.svg"
        out.print(f"plot: {self.plot}" if self.plot else hint, markup=False)
        out.write_result(
            {"env": groups[0].env, "mode": mode, "measure": measure, "plot": self.plot} | comparison.to_json()
        )
        return 0


def _print_comparison(out: CommandOutput, comparison: RunComparison, title: str) -> None:
    from thespis.evaluation import formatting

    rows = [
        (g.name, formatting.format_number(g.iqm), formatting.format_interval(g.interval), str(len(g.scores)))
        for g in comparison.groups
    ]
    out.print(summary_table(title, "group", rows))
    for pair in comparison.pairs:
        out.print(Text(f"{pair.sentence}.", style="bold"))
        interval = formatting.format_interval(pair.interval)
        interval = f"95% interval {interval}" if pair.interval else f"{interval} for an interval"
        out.print(
            Text(f"probability that a seed of {pair.a} beats one of {pair.b}: {pair.probability:.2f} ({interval})")
        )
        if pair.paired_sentence:
            out.print(Text(pair.paired_sentence))
