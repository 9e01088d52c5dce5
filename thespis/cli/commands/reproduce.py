"""``thespis reproduce``."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.table import Table
from rich.text import Text

from thespis.cli.options import JsonFlag
from thespis.cli.output import Output, complain
from thespis.cli.training import INTERRUPTED

if TYPE_CHECKING:
    from thespis.evidence.paper import Paper
    from thespis.evidence.trial import Piece
    from thespis.runs.events import Listener


@dataclasses.dataclass(frozen=True)
class Reproduce:
    """Put a paper's claim to its test: train the arms, print the verdict, write the evidence.

    What is finished is kept, so the same command goes on after an interruption. `all` stands for every paper.
    """

    ids: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="ID ...")]
    """Papers (thespis papers)."""
    full: bool = False
    """The paper's own environments and budget instead of the miniature; may take hours."""
    evidence: Annotated[str, tyro.conf.arg(metavar="DIR")] = "evidence"
    """Where the record and its figure are written."""
    runs: Annotated[str, tyro.conf.arg(metavar="DIR")] = "runs/papers"
    """Where the arms are trained; papers that have one in common train it once."""
    json: JsonFlag = False
    quiet: bool = False
    """No progress: only the verdicts."""

    def run(self, out: Output) -> int:
        """Run the trials one after the other."""
        from thespis.core.errors import UserError
        from thespis.evidence.trial import Interrupted
        from thespis.papers import registry

        if not self.ids:
            raise UserError("name at least one paper (thespis papers), or all")
        papers = [registry.load(id) for id in (registry.ids() if self.ids == ("all",) else self.ids)]
        for paper in papers:
            paper.trial(self.full)  # all or none
        records = []
        for paper in papers:
            try:
                records.append(self._one(out, paper))
            except Interrupted:
                complain(f"{paper.id} was interrupted and is saved; the same command goes on from there")
                return INTERRUPTED
        if len(records) > 1:
            out.say(_summary(records))
        out.result(records if len(records) > 1 else records[0])
        return 0

    def _one(self, out: Output, paper: Paper) -> dict[str, Any]:
        from thespis.evidence import figure, record
        from thespis.evidence.trial import run_trial

        trial = paper.trial(self.full)
        out.say(Text(f"{paper.id}: {paper.claim}", style="bold"))
        declared_in = record.committed(paper)
        if declared_in is None:
            complain(f"warning: the declaration of {paper.id} is not committed: nobody can see that it came first")
        with contextlib.ExitStack() as displays:  # whatever happens, the terminal is given back
            outcome = run_trial(trial, Path(self.runs), lambda piece: self._watch(out, piece, displays))
        found = record.recorded(paper, self.full, outcome, declared_in)
        path = record.write(Path(self.evidence), found, figure.draw(found))
        show(out, found)
        out.say(f"evidence: {path} and {path.with_suffix('.svg').name}")
        return found

    def _watch(self, out: Output, piece: Piece, displays: contextlib.ExitStack) -> list[Listener]:
        if self.quiet:
            return []
        from thespis.cli.live import Live

        out.say(Text(f"{piece.arm.name} on {piece.env}, seeds {piece.seeds[0]}-{piece.seeds[-1]}"
                     f" ({piece.number} of {piece.of})"))  # fmt: skip
        return [displays.enter_context(Live(out.console))]


def show(out: Output, found: dict[str, Any]) -> None:
    """Print a record: a table per measure, every finding, the verdict."""
    from thespis.evaluation import words

    for measure in found["measures"]:
        table = Table(title=measure["name"].capitalize(), title_justify="left", title_style="bold")
        for head in ("arm", "environment", "IQM", "95% interval", "seeds"):
            table.add_column(head, justify="left" if head in ("arm", "environment") else "right", overflow="fold")
        for arm, envs in measure["arms"].items():
            for env, told in envs.items():
                seeds = str(len(told["scores"]))
                table.add_row(
                    arm, env.rpartition(":")[2], words.number(told["iqm"]), words.interval(told["interval"]), seeds
                )
        out.say(table)
    for finding in found["findings"]:
        span = f" ({found['level']:.1%} interval {words.interval(finding['interval'])})" if finding["interval"] else ""
        out.say(Text(f"{finding['verdict']}: {finding['claim']}: {finding['estimate']:.3g}{span}"))
    out.say(Text(f"{found['id']}: {found['verdict']}", style="bold"))


def _summary(records: list[dict[str, Any]]) -> Table:
    table = Table(title="Verdicts", title_justify="left", title_style="bold")
    for head in ("paper", "verdict", "seeds", "minutes"):
        table.add_column(head, justify="left" if head in ("paper", "verdict") else "right")
    for found in records:
        table.add_row(found["id"], found["verdict"], str(len(found["seeds"])), f"{found['minutes']:.1f}")
    return table
