"""Command ``thespis reproduce``: trials of papers' claims."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.table import Table
from rich.text import Text

from thespis.cli.options import JsonFlag
from thespis.cli.output import CommandOutput, print_stderr

if TYPE_CHECKING:
    from thespis.evidence.paper import PairedTrial, Paper, Trial


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
        from thespis.cli.trial_progress import run_each
        from thespis.core.errors import UserError
        from thespis.papers import registry

        if not self.ids:
            raise UserError("name at least one paper (thespis papers), or all")
        ids = registry.paper_ids() if self.ids == ("all",) else self.ids
        papers = {id: registry.load_paper(id) for id in ids}
        for paper in papers.values():  # raises before any trial starts
            self._check_bench(paper.trial(self.full))

        def summarize(records: list[dict[str, Any]]) -> int:
            if len(records) > 1:
                out.print(_verdict_table(records))
            return 0

        return run_each(out, ids, lambda id: self._reproduce_paper(out, papers[id]), summarize)

    def _reproduce_paper(self, out: CommandOutput, paper: Paper) -> dict[str, Any]:
        from thespis.cli.trial_progress import train_with_progress
        from thespis.evidence import figure, paired_figure, record
        from thespis.evidence.paper import PairedTrial
        from thespis.evidence.runner import run_paired_trial, run_trial
        from thespis.papers.registry import paper_module

        trial, runs = paper.trial(self.full), Path(self.runs)
        out.print(Text(f"{paper.id}: {paper.claim}", style="bold"))
        commit = record.declaration_commit(paper_module(paper.id))
        if commit is None:
            print_stderr(
                f"warning: the declaration of {paper.id} is not committed: it cannot be shown to precede the results"
            )
        if isinstance(trial, PairedTrial):
            outcome = train_with_progress(out, self.quiet, lambda make: run_paired_trial(trial, runs, make))
            new_record = record.make_paired_record(paper, self.full, outcome, commit)
            image = paired_figure.plot_paired_record(new_record)
        else:
            outcome = train_with_progress(out, self.quiet, lambda make: run_trial(trial, runs, make))
            new_record = record.make_record(paper, self.full, outcome, commit)
            image = figure.plot_record(new_record)
        path = record.write_record(Path(self.evidence), new_record, image)
        print_record(out, new_record)
        out.print(f"evidence: {path} and {path.with_suffix('.svg').name}")
        return new_record

    def _check_bench(self, trial: Trial | PairedTrial) -> None:
        """Refuse a trial on a bench that is not admitted, before anything is trained."""
        from thespis.core.errors import UserError
        from thespis.evidence.bench import admission_status, read_admission
        from thespis.evidence.benches.registry import load_bench
        from thespis.evidence.paper import PairedTrial

        if isinstance(trial, PairedTrial) and trial.bench:
            name = trial.bench_name
            status = admission_status(load_bench(name), read_admission(Path(self.evidence), name))
            if status != "admitted":
                raise UserError(
                    f"bench {trial.bench} is {status}, and judges no paper until its controls have passed: "
                    f"thespis bench check {name}"
                )


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
                    formatting.short_env_name(env),
                    formatting.format_number(result["iqm"]),
                    formatting.format_interval(result["interval"]),
                    seeds,
                )
        out.print(table)
    if record.get("protocol") == 2:
        _print_claims(out, record)
        out.print(Text(f"{record['id']}: {record['verdict']}", style="bold"))
        return
    for finding in record["findings"]:
        interval = (
            f" ({record['level']:.1%} interval {formatting.format_interval(finding['interval'])})"
            if finding["interval"]
            else ""
        )
        out.print(Text(f"{finding['verdict']}: {finding['claim']}: {finding['estimate']:.3g}{interval}"))
    out.print(Text(f"{record['id']}: {record['verdict']}", style="bold"))


def _print_claims(out: CommandOutput, record: dict[str, Any]) -> None:
    """Every claim of a paired trial, with its verdict, and a line for each environment."""
    from thespis.evidence.pages import estimate_texts, verdict_text

    for finding in record["findings"]:
        out.print(Text(f"{finding['kind']}: {finding['claim']}", style="bold"))
        pairs = f", {finding['pairs']} pairs" if finding["pairs"] else ""
        out.print(Text(f"  {verdict_text(finding)}{pairs}"))
        for place, difference, effect in estimate_texts(finding):
            if difference:
                out.print(Text(f"  {place}: {difference}" + (f"; in sd of seeds {effect}" if effect else "")))


def _verdict_table(records: list[dict[str, Any]]) -> Table:
    table = Table(title="Verdicts", title_justify="left", title_style="bold")
    for header in ("paper", "verdict", "seeds", "minutes"):
        table.add_column(header, justify="left" if header in ("paper", "verdict") else "right")
    for record in records:
        table.add_row(record["id"], record["verdict"], str(len(record["seeds"])), f"{record['minutes']:.1f}")
    return table
