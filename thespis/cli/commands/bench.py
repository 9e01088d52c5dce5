"""Command ``thespis bench``: benches on which papers are tried, and the controls that admit them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.table import Table
from rich.text import Text

from thespis.cli.options import JsonFlag
from thespis.cli.output import CommandOutput

if TYPE_CHECKING:
    from thespis.evidence.bench import Bench


@dataclasses.dataclass(frozen=True)
class BenchCommand:
    """List the benches on which papers are tried, or run the controls of some, which admit or refuse them.

    Controls train on tuning seeds, from 1,000 on. Finished runs are kept, so that the same command continues after an
    interruption.
    """

    action: Annotated[tyro.conf.Positional[Literal["list", "check"]], tyro.conf.arg(metavar="list|check")] = "list"
    """List the benches, or check those that are named."""
    names: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[NAME ...]")] = ()
    """Benches; `all` stands for every one."""
    evidence: Annotated[str, tyro.conf.arg(metavar="DIR")] = "evidence"
    """The directory of the evidence; the records of controls are in its folder `benches`."""
    runs: Annotated[str, tyro.conf.arg(metavar="DIR")] = "runs/papers"
    """The directory in which the arms are trained."""
    json: JsonFlag = False
    quiet: bool = False
    """No progress: only the results."""

    def run(self, out: CommandOutput) -> int:
        """Print the table of benches, or run controls; exit code 1 if a bench is refused."""
        from thespis.cli.trial_progress import run_each
        from thespis.core.errors import UserError
        from thespis.evidence.benches import registry as benches

        if self.action == "list":
            if self.names:
                raise UserError("bench list names every bench; to run the controls of one: thespis bench check NAME")
            return self._list(out)
        if not self.names:
            raise UserError("name at least one bench (thespis bench list), or all")
        names = benches.bench_names() if self.names == ("all",) else self.names
        chosen = {name: benches.load_bench(name) for name in names}  # raises before any control starts
        return run_each(
            out,
            names,
            lambda name: self._check(out, chosen[name]),
            lambda records: 0 if all(record["admitted"] for record in records) else 1,
        )

    def _list(self, out: CommandOutput) -> int:
        from thespis.evidence import bench as bench_module
        from thespis.evidence.benches import registry as benches

        table = Table(title="Benches", title_justify="left", title_style="bold")
        for header in ("bench", "status", "headroom", "what it shows"):
            table.add_column(header, overflow="fold")
        rows = []
        for name in benches.bench_names():
            bench = benches.load_bench(name)
            admission = bench_module.read_admission(Path(self.evidence), name)
            status = bench_module.admission_status(bench, admission)
            checks = admission["checks"] if admission else []
            headroom = ", ".join(check["value"] for check in checks if check["name"].startswith("headroom"))
            table.add_row(bench.label, status, headroom, bench.summary)
            rows.append({"name": name, "version": bench.version, "status": status, "envs": bench.envs})
            rows[-1] |= {"summary": bench.summary, "steps": bench.steps, "checks": checks}
        out.print(table)
        out.write_result(rows)
        return 0

    def _check(self, out: CommandOutput, bench: Bench) -> dict[str, Any]:
        from thespis.cli.trial_progress import train_with_progress
        from thespis.evidence import bench as bench_module
        from thespis.evidence import record
        from thespis.evidence.benches import registry as benches
        from thespis.evidence.runner import run_paired_trial

        trial = bench.controls
        out.print(Text(f"{bench.label}: {bench.summary}", style="bold"))
        outcome = train_with_progress(out, self.quiet, lambda make: run_paired_trial(trial, Path(self.runs), make))
        earlier = bench_module.read_admission(Path(self.evidence), bench.name)
        if earlier and bench_module.is_current(bench, earlier):  # only what does not matter has changed in its file
            commit = earlier["declared_in"]
        else:
            commit = record.declaration_commit(benches.bench_module(bench.name))
        content = bench_module.make_admission(bench, outcome, commit)
        path = bench_module.admission_path(Path(self.evidence), bench.name)
        record.write_json(path, content)
        table = Table(title=f"{bench.label}: {'admitted' if content['admitted'] else 'refused'}", title_justify="left")
        for header in ("condition", "value", ""):
            table.add_column(header, overflow="fold")
        for check in content["checks"]:
            table.add_row(check["name"], check["value"], "passed" if check["passed"] else "failed")
        out.print(table)
        out.print(f"evidence: {path}")
        return content
