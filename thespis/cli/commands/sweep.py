"""Command ``thespis sweep``: training over a grid of settings."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from thespis.cli.options import Count, JsonFlag, TrustOption, optional_arg
from thespis.cli.output import CommandOutput, print_stderr
from thespis.cli.train_args import TrainArgs, flatten_option
from thespis.cli.train_session import EXIT_DIVERGED, EXIT_INTERRUPTED

if TYPE_CHECKING:
    from thespis.runs.events import Event
    from thespis.sweeps.sweep import SweepResult, SweepRow

EXIT_CODES = {"failed": 2, "diverged": EXIT_DIVERGED, "lost": 2, "broken": 1}
"""Exit codes by reason of a failed job."""


@dataclasses.dataclass(frozen=True)
class SweepCommand(TrainArgs):
    """Train every setting of a grid with every seed, several runs in parallel, and rank the settings.

    thespis sweep sac --env Pendulum-v1 --steps 20000 --seeds 4 --grid learning_rate=1e-3,3e-4 batch=64,128

    Finished runs are kept, so the same command with the same --out continues after an interruption.
    """

    grid: Annotated[
        tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]], tyro.conf.arg(metavar="NAME=VALUE,VALUE ..")
    ] = ()
    """Settings of the method and the values to try; all combinations are trained. Tuples in brackets:
    hidden_sizes=[64,64],[256,256]."""
    jobs: Annotated[Count | None, optional_arg("N")] = None
    """Number of parallel runs, with one CPU each; by default the number of CPUs."""
    seeds_per_job: Annotated[Count | None, optional_arg("N")] = None
    """Seeds per run, which train in parallel; by default all of them. 1 makes every seed a separate run."""
    cluster: Annotated[str | None, optional_arg("HOST:PORT")] = None
    """The Ray cluster to run in, or auto for the one of this machine; by default a new one on this machine."""
    out: Annotated[str | None, optional_arg("DIR")] = None
    """The directory for the runs; by default a new one under runs/."""
    trust: TrustOption = ()
    """A module whose code a run may use that the jobs read, such as an opponent's, besides that of Thespis; can be
    repeated (docs/runs.md)."""
    json: JsonFlag = False
    quiet: bool = False
    """No progress: only warnings and the result."""

    def run(self, out: CommandOutput) -> int:
        """Run the sweep and print the table of results."""
        from thespis.sweeps.sweep import sweep

        result = sweep(
            **self.train_kwargs(),
            grid=flatten_option(self.grid),
            jobs=self.jobs,
            seeds_per_job=self.seeds_per_job,
            cluster=self.cluster,
            out=self.out,
            callbacks=[_SweepListener(out, self.quiet)],
        )
        _print_results(out, result)
        out.write_result(result.to_json())
        if result.reason == "interrupted":
            print_stderr("interrupted: finished runs are kept; run the same command with this --out to continue")
            return EXIT_INTERRUPTED
        return max((EXIT_CODES[failure.reason] for failure in result.failures), default=0)


class _SweepListener:
    """Callback that prints a line for each job that ends."""

    def __init__(self, out: CommandOutput, quiet: bool):
        self._out, self._quiet = out, quiet
        self._jobs = self._over = 0

    def __call__(self, event: Event) -> None:
        """Print one event of the run as a line."""
        match event.kind:
            case "start":
                self._start(event.data)
            case "warning":
                print_stderr(f"warning: {event.data['message']}")
            case "done":
                self._over += 1
                self._done(event.data)

    def _start(self, data: dict[str, Any]) -> None:
        from thespis.evaluation import formatting

        self._jobs, self._over = data["jobs"], data["finished"]
        finished = f", {self._over:,} of them already finished" if self._over else ""
        if not self._quiet:
            self._out.print(f"{formatting.format_count(self._jobs, 'run')} in {data['run']}{finished}")

    def _done(self, data: dict[str, Any]) -> None:
        match data["reason"]:
            case "finished" if not self._quiet:
                self._out.print(f"{self._over} of {self._jobs}: {data['run']}{_greedy_return(data['run'])}")
            case "failed" | "diverged" | "lost":
                print_stderr(f"{data['run']}: {data['message']}")
            case "broken":
                print_stderr(f"{data['run']}: unexpected error: please report these lines\n{data['message']}")


def _greedy_return(path: str) -> str:
    from thespis.evaluation import formatting
    from thespis.runs.store import RunDirectory

    final = RunDirectory.open(path).read_json("final.json")
    return f": greedy return {formatting.format_number(final['greedy']['iqm'])}" if final else ""


def _print_results(out: CommandOutput, result: SweepResult) -> None:
    from rich.text import Text

    from thespis.cli.tables import summary_table

    out.print(
        summary_table(
            f"Greedy return on {result.env or 'a dataset'}", "setting", [_table_cells(row) for row in result.rows]
        )
    )
    out.print(Text(f"runs: {result.path}"))
    if command := result.compare_command():
        out.print(Text(f"compare the best two: {command}"))


def _table_cells(row: SweepRow) -> tuple[str, str, str, str]:
    from thespis.evaluation import formatting

    seeds = (
        str(len(row.seeds))
        if len(row.seeds) == row.num_planned_seeds
        else f"{len(row.seeds)} of {row.num_planned_seeds}"
    )
    if row.summary is None:
        return row.name, "–", "–", seeds
    return row.name, formatting.format_number(row.summary.iqm), formatting.format_interval(row.summary.interval), seeds
