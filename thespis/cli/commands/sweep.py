"""``thespis sweep``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from thespis.cli.asked import Asked, flat
from thespis.cli.options import Count, JsonFlag, optional
from thespis.cli.output import Output, complain
from thespis.cli.training import DIVERGED, INTERRUPTED

if TYPE_CHECKING:
    from thespis.runs.events import Event
    from thespis.sweeps.results import Row
    from thespis.sweeps.results import Sweep as Done

CODES = {"failed": 2, "diverged": DIVERGED, "lost": 2, "broken": 1}
"""Exit codes by the reason why a job has no finished run."""


@dataclasses.dataclass(frozen=True)
class Sweep(Asked):
    """Train every setting of a grid with every seed, several runs at once, and say which setting is best.

    thespis sweep sac --env Pendulum-v1 --steps 20000 --seeds 4 --grid learning_rate=1e-3,3e-4 batch=64,128

    What is finished is kept, so the same command with the same --out goes on after an interruption.
    """

    grid: Annotated[
        tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]], tyro.conf.arg(metavar="NAME=VALUE,VALUE ..")
    ] = ()
    """Settings of the method and the values to try; all combinations are trained. Tuples in brackets:
    hidden=[64,64],[256,256]."""
    jobs: Annotated[Count | None, optional("N")] = None
    """Runs at once, with one CPU each; by default as many as there are CPUs."""
    seeds_per_job: Annotated[Count | None, optional("N")] = None
    """Seeds of one run, which train side by side; by default all of them. 1 makes every seed a run of its own."""
    cluster: Annotated[str | None, optional("HOST:PORT")] = None
    """The Ray cluster to run in, or auto for the one of this machine; by default a Ray of the sweep's own here."""
    out: Annotated[str | None, optional("DIR")] = None
    """Where the runs are written; by default a new directory under runs/."""
    json: JsonFlag = False
    quiet: bool = False
    """No progress: only warnings and the result."""

    def run(self, out: Output) -> int:
        """Train and print the table."""
        from thespis.sweeps.sweeping import sweep

        done = sweep(
            **self.arguments(), grid=flat(self.grid), jobs=self.jobs, seeds_per_job=self.seeds_per_job,
            cluster=self.cluster, out=self.out, callbacks=[_Told(out, self.quiet)],
        )  # fmt: skip
        _show(out, done)
        out.result(done.to_json())
        if done.reason == "interrupted":
            complain("interrupted: what was finished is kept, and the same command with this --out goes on from there")
            return INTERRUPTED
        return max((CODES[failure.reason] for failure in done.failures), default=0)


class _Told:
    """A listener that says what becomes of the jobs, a line each."""

    def __init__(self, out: Output, quiet: bool):
        self._out, self._quiet = out, quiet
        self._jobs = self._over = 0

    def __call__(self, event: Event) -> None:
        """Say one event."""
        match event.kind:
            case "start":
                self._start(event.data)
            case "warning":
                complain(f"warning: {event.data['message']}")
            case "done":
                self._over += 1
                self._done(event.data)

    def _start(self, data: dict[str, Any]) -> None:
        from thespis.evaluation import words

        self._jobs, self._over = data["jobs"], data["finished"]
        kept = f", {self._over:,} of them finished before" if self._over else ""
        if not self._quiet:
            self._out.say(f"{words.count(self._jobs, 'run')} in {data['run']}{kept}")

    def _done(self, data: dict[str, Any]) -> None:
        match data["reason"]:
            case "finished" if not self._quiet:
                self._out.say(f"{self._over} of {self._jobs}: {data['run']}{_greedy(data['run'])}")
            case "failed" | "diverged" | "lost":
                complain(f"{data['run']}: {data['message']}")
            case "broken":
                complain(f"{data['run']}: this was not foreseen: please report these lines\n{data['message']}")


def _greedy(path: str) -> str:
    from thespis.evaluation import words
    from thespis.runs.store import RunDirectory

    final = RunDirectory.open(path).read_json("final.json")
    return f": greedy return {words.number(final['greedy']['iqm'])}" if final else ""


def _show(out: Output, done: Done) -> None:
    from rich.text import Text

    from thespis.cli.tables import summaries

    out.say(summaries(f"Greedy return on {done.env or 'a dataset'}", "setting", [_cells(row) for row in done.rows]))
    out.say(Text(f"runs: {done.path}"))
    if command := done.compare_command():
        out.say(Text(f"compare the first two: {command}"))


def _cells(row: Row) -> tuple[str, str, str, str]:
    from thespis.evaluation import words

    seeds = str(len(row.seeds)) if len(row.seeds) == row.wanted else f"{len(row.seeds)} of {row.wanted}"
    if row.summary is None:
        return row.name, "–", "–", seeds
    return row.name, words.number(row.summary.iqm), words.interval(row.summary.interval), seeds
