"""Command ``thespis papers``: papers with testable claims."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.table import Table
from rich.text import Text

from thespis.cli.options import JsonFlag, optional_arg
from thespis.cli.output import CommandOutput

if TYPE_CHECKING:
    from thespis.evidence.paper import Paper

VerdictLabel = Literal["shown", "contradicted", "level", "undecided", "not shown", "outdated", "none yet"]


@dataclasses.dataclass(frozen=True)
class PapersCommand:
    """List the papers whose claims can be tested, or show the details of one."""

    id: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[ID]", help_behavior_hint="")] = None
    """The paper to show; by default all are listed."""
    family: Annotated[str | None, optional_arg("FAMILY")] = None
    """Only papers of this family."""
    verdict: Annotated[VerdictLabel | None, optional_arg("VERDICT")] = None
    """Only papers with this verdict."""
    evidence: Annotated[str, tyro.conf.arg(metavar="DIR")] = "evidence"
    """The directory with the evidence."""
    write: Annotated[str | None, optional_arg("DIR")] = None
    """Write the pages to this directory: papers.md, and papers/ID.md for each paper."""
    json: JsonFlag = False

    def run(self, out: CommandOutput) -> int:
        """Print the list or the details of one paper, or write the pages."""
        from thespis.core.errors import UserError
        from thespis.evidence.pages import write_pages
        from thespis.papers import registry

        if self.write:
            write_pages([registry.load_paper(id) for id in registry.paper_ids()], Path(self.evidence), Path(self.write))
            out.print(f"written: {Path(self.write) / 'papers.md'}")
            return 0
        if self.id is not None:
            return self._show_paper(out, registry.load_paper(self.id))
        papers = [registry.load_paper(id) for id in registry.paper_ids()]
        families = sorted({paper.family for paper in papers})
        if self.family not in (None, *families):
            raise UserError(f"unknown family {self.family!r}: it is one of {', '.join(families)}")
        rows = [self._paper_row(paper) for paper in papers]
        rows = [row for row in rows if self.family in (None, row["family"]) and self.verdict in (None, row["verdict"])]
        table = Table(title="Papers", title_justify="left", title_style="bold")
        for header in ("id", "family", "verdict", "protocol", "seeds", "minutes"):
            table.add_column(
                header, justify="right" if header in ("protocol", "seeds", "minutes") else "left", overflow="fold"
            )
        for row in rows:
            minutes = "" if row["minutes"] is None else f"{row['minutes']:.1f}"
            cells = row["id"], row["family"], row["verdict"], str(row["protocol"]), str(row["seeds"] or ""), minutes
            table.add_row(*cells)
        out.print(table)
        out.write_result(rows)
        return 0

    def _paper_row(self, paper: Paper) -> dict[str, Any]:
        from thespis.evidence import record
        from thespis.evidence.pages import protocol_number, verdict_status

        evidence_record = record.read_record(Path(self.evidence), paper.id)
        return {
            "id": paper.id,
            "title": paper.citation.title,
            "family": paper.family,
            "verdict": verdict_status(paper, evidence_record),
            "protocol": protocol_number(paper),
            "seeds": len(evidence_record["seeds"]) if evidence_record else None,
            "minutes": evidence_record["minutes"] if evidence_record else None,
        }

    def _show_paper(self, out: CommandOutput, paper: Paper) -> int:
        from thespis.cli.commands.reproduce import print_record
        from thespis.evidence import record

        citation, evidence_record = paper.citation, record.read_record(Path(self.evidence), paper.id)
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        rows = [
            ("paper", f"{citation.authors} {citation.year}: {citation.title}, {citation.id}"),
            ("does", paper.summary),
        ]
        rows += [("claim", paper.claim), *(("part", part) for part in paper.parts), ("use", paper.command)]
        rows += [(kind, claim.sentence) for kind, claim in paper.miniature.named_claims]
        rows += [("verdict", self._paper_row(paper)["verdict"])]
        rows += [("remarks", paper.remarks)] if paper.remarks else []
        for name, text in rows:
            grid.add_row(name, Text(text))
        out.print(grid)
        if evidence_record:
            print_record(out, evidence_record)
        out.write_result(
            self._paper_row(paper)
            | {"claim": paper.claim, "parts": paper.parts, "use": paper.command, "record": evidence_record}
        )
        return 0
