"""``thespis papers``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.table import Table
from rich.text import Text

from thespis.cli.options import JsonFlag, optional
from thespis.cli.output import Output

if TYPE_CHECKING:
    from thespis.evidence.paper import Paper

Verdict = Literal["shown", "not shown", "contradicted", "outdated", "none yet"]


@dataclasses.dataclass(frozen=True)
class Papers:
    """List the papers whose claims can be tested, or tell all about one."""

    id: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[ID]", help_behavior_hint="")] = None
    """The paper to tell about; all, if none is named."""
    family: Annotated[str | None, optional("FAMILY")] = None
    """Only papers of this family."""
    verdict: Annotated[Verdict | None, optional("VERDICT")] = None
    """Only papers with this verdict."""
    evidence: Annotated[str, tyro.conf.arg(metavar="DIR")] = "evidence"
    """Where the evidence lies."""
    write: Annotated[str | None, optional("DIR")] = None
    """Write the pages there: papers.md, and papers/ID.md for each."""
    json: JsonFlag = False

    def run(self, out: Output) -> int:
        """Print what was asked for."""
        from thespis.core.errors import UserError
        from thespis.evidence.page import write
        from thespis.papers import registry

        if self.write:
            write([registry.load(id) for id in registry.ids()], Path(self.evidence), Path(self.write))
            out.say(f"written: {Path(self.write) / 'papers.md'}")
            return 0
        if self.id is not None:
            return self._tell(out, registry.load(self.id))
        papers = [registry.load(id) for id in registry.ids()]
        families = sorted({paper.family for paper in papers})
        if self.family not in (None, *families):
            raise UserError(f"unknown family {self.family!r}: it is one of {', '.join(families)}")
        told = [self._row(paper) for paper in papers]
        told = [row for row in told if self.family in (None, row["family"]) and self.verdict in (None, row["verdict"])]
        table = Table(title="Papers", title_justify="left", title_style="bold")
        for head in ("id", "family", "verdict", "seeds", "minutes"):
            table.add_column(head, justify="right" if head in ("seeds", "minutes") else "left", overflow="fold")
        for row in told:
            minutes = "" if row["minutes"] is None else f"{row['minutes']:.1f}"
            table.add_row(row["id"], row["family"], row["verdict"], str(row["seeds"] or ""), minutes)
        out.say(table)
        out.result(told)
        return 0

    def _row(self, paper: Paper) -> dict[str, Any]:
        from thespis.evidence import record
        from thespis.evidence.page import state

        found = record.read(Path(self.evidence), paper.id)
        return {
            "id": paper.id,
            "title": paper.citation.title,
            "family": paper.family,
            "verdict": state(paper, found),
            "seeds": len(found["seeds"]) if found else None,
            "minutes": found["minutes"] if found else None,
        }

    def _tell(self, out: Output, paper: Paper) -> int:
        from thespis.cli.commands.reproduce import show
        from thespis.evidence import record

        cited, found = paper.citation, record.read(Path(self.evidence), paper.id)
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        rows = [("paper", f"{cited.authors} {cited.year}: {cited.title}, {cited.id}"), ("does", paper.does)]
        rows += [("claim", paper.claim), *(("part", part) for part in paper.parts), ("use", paper.use)]
        rows += [("test", claim.sentence) for claim in paper.miniature.claims]
        rows += [("verdict", self._row(paper)["verdict"])]
        rows += [("remarks", paper.remarks)] if paper.remarks else []
        for name, text in rows:
            grid.add_row(name, Text(text))
        out.say(grid)
        if found:
            show(out, found)
        out.result(self._row(paper) | {"claim": paper.claim, "parts": paper.parts, "use": paper.use, "record": found})
        return 0
