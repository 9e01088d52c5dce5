"""Command ``thespis reproduce``: trials of papers' claims."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.table import Table
from rich.text import Text

from thespis.cli.options import JsonFlag
from thespis.cli.output import CommandOutput, print_stderr
from thespis.cli.train_session import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from thespis.evidence.paper import Paper
    from thespis.evidence.runner import TrialJob
    from thespis.runs.events import Callback


@dataclasses.dataclass(frozen=True)
class ReproduceCommand:
    """Test a paper's claim: train the arms, print the verdict, write the evidence.

    Finished runs are kept, so the same command continues after an interruption. `all` stands for every paper.
    """

    ids: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="ID ...")]
    """Papers (thespis papers)."""
    full: bool = False
    """Use the paper's own environments and budget instead of the miniature; may take hours."""
    evidence: Annotated[str, tyro.conf.arg(metavar="DIR")] = "evidence"
    """The directory for the record and its figure."""
    runs: Annotated[str, tyro.conf.arg(metavar="DIR")] = "runs/papers"
    """The directory in which the arms are trained; an arm that papers share is trained once."""
    json: JsonFlag = False
    quiet: bool = False
    """No progress: only the verdicts."""

    def run(self, out: CommandOutput) -> int:
        """Run the trials one after the other."""
        from thespis.core.errors import UserError
        from thespis.evidence.runner import TrialInterrupted
        from thespis.papers import registry

        if not self.ids:
            raise UserError("name at least one paper (thespis papers), or all")
        papers = [registry.load_paper(id) for id in (registry.paper_ids() if self.ids == ("all",) else self.ids)]
        for paper in papers:
            paper.trial(self.full)  # raises before any trial starts
        records = []
        for paper in papers:
            try:
                records.append(self._reproduce_paper(out, paper))
            except TrialInterrupted:
                print_stderr(f"{paper.id} was interrupted and is saved; run the same command to continue")
                return EXIT_INTERRUPTED
        if len(records) > 1:
            out.print(_verdict_table(records))
        out.write_result(records if len(records) > 1 else records[0])
        return 0

    def _reproduce_paper(self, out: CommandOutput, paper: Paper) -> dict[str, Any]:
        from thespis.evidence import figure, record
        from thespis.evidence.runner import run_trial

        trial = paper.trial(self.full)
        out.print(Text(f"{paper.id}: {paper.claim}", style="bold"))
        commit = record.declaration_commit(paper)
        if commit is None:
            print_stderr(
                f"warning: the declaration of {paper.id} is not committed: it cannot be shown to precede the results"
            )
        with contextlib.ExitStack() as displays:  # restores the terminal also after an error
            outcome = run_trial(trial, Path(self.runs), lambda job: self._progress_listeners(out, job, displays))
        new_record = record.make_record(paper, self.full, outcome, commit)
        path = record.write_record(Path(self.evidence), new_record, figure.plot_record(new_record))
        print_record(out, new_record)
        out.print(f"evidence: {path} and {path.with_suffix('.svg').name}")
        return new_record

    def _progress_listeners(
        self, out: CommandOutput, piece: TrialJob, displays: contextlib.ExitStack
    ) -> list[Callback]:
        if self.quiet:
            return []
        from thespis.cli.progress import LiveDisplay

        out.print(
            Text(
                f"{piece.arm.name} on {piece.env}, seeds {piece.seeds[0]}-{piece.seeds[-1]}"
                f" ({piece.number} of {piece.total})"
            )
        )
        return [displays.enter_context(LiveDisplay(out.console))]


def print_record(out: CommandOutput, record: dict[str, Any]) -> None:
    """Print a record: a table per measure, every finding, the verdict."""
    from thespis.evaluation import formatting

    for measure in record["measures"]:
        table = Table(title=measure["name"].capitalize(), title_justify="left", title_style="bold")
        for header in ("arm", "environment", "IQM", "95% interval", "seeds"):
            table.add_column(header, justify="left" if header in ("arm", "environment") else "right", overflow="fold")
        for arm, envs in measure["arms"].items():
            for env, result in envs.items():
                seeds = str(len(result["scores"]))
                table.add_row(
                    arm,
                    env.rpartition(":")[2],
                    formatting.format_number(result["iqm"]),
                    formatting.format_interval(result["interval"]),
                    seeds,
                )
        out.print(table)
    for finding in record["findings"]:
        interval = (
            f" ({record['level']:.1%} interval {formatting.format_interval(finding['interval'])})"
            if finding["interval"]
            else ""
        )
        out.print(Text(f"{finding['verdict']}: {finding['claim']}: {finding['estimate']:.3g}{interval}"))
    out.print(Text(f"{record['id']}: {record['verdict']}", style="bold"))


def _verdict_table(records: list[dict[str, Any]]) -> Table:
    table = Table(title="Verdicts", title_justify="left", title_style="bold")
    for header in ("paper", "verdict", "seeds", "minutes"):
        table.add_column(header, justify="left" if header in ("paper", "verdict") else "right")
    for record in records:
        table.add_row(record["id"], record["verdict"], str(len(record["seeds"])), f"{record['minutes']:.1f}")
    return table
