"""Command ``thespis bench``: benches on which papers are tried, and the controls that admit them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.table import Table
from rich.text import Text

from thespis.cli.options import JsonFlag
from thespis.cli.output import CommandOutput, print_stderr
from thespis.cli.train_session import EXIT_INTERRUPTED

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
        """Print the table of benches, or run controls."""
        from thespis.core.errors import UserError
        from thespis.evidence.benches import registry as benches
        from thespis.evidence.runner import TrialInterrupted

        if self.action == "list":
            if self.names:
                raise UserError("bench list names every bench; to run the controls of one: thespis bench check NAME")
            return self._list(out)
        if not self.names:
            raise UserError("name at least one bench (thespis bench list), or all")
        chosen = [benches.load_bench(n) for n in (benches.bench_names() if self.names == ("all",) else self.names)]
        results = []
        for bench in chosen:
            try:
                results.append(self._check(out, bench))
            except TrialInterrupted:
                print_stderr(f"{bench.name} was interrupted and is saved; run the same command to continue")
                return EXIT_INTERRUPTED
        out.write_result(results if len(results) > 1 else results[0])
        return 0 if all(result["admitted"] for result in results) else 1

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
            headroom = ", ".join(check["found"] for check in checks if check["name"].startswith("headroom"))
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
        checks = bench_module.check_bench(bench, outcome)
        content = {
            "name": bench.name,
            "version": bench.version,
            "admitted": all(check.passed for check in checks),
            "checks": [dataclasses.asdict(check) for check in checks],
            "findings": record.ruling_rows(trial, outcome),
        } | record.trial_content(trial, outcome, record.declaration_commit(benches.bench_module(bench.name)))
        content |= {"declaration": bench.declaration(), "digest": bench.digest, "tuning": bench.tuning}
        path = bench_module.write_admission(Path(self.evidence), content)
        table = Table(title=f"{bench.label}: {'admitted' if content['admitted'] else 'refused'}", title_justify="left")
        for header in ("condition", "found", ""):
            table.add_column(header, overflow="fold")
        for check in checks:
            table.add_row(check.name, check.found, "passed" if check.passed else "failed")
        out.print(table)
        out.print(f"evidence: {path}")
        return content
