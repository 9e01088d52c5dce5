"""``thespis report``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from thespis.cli.options import JsonFlag, RunPaths, optional
from thespis.cli.output import Output
from thespis.core.errors import UserError


@dataclasses.dataclass(frozen=True)
class MakeReport:
    """Write a report of one run, or of several side by side: one HTML file that opens from disk."""

    directories: RunPaths
    """Directories of runs."""
    out: Annotated[str | None, optional("FILE")] = None
    """Where to; by default report.html in the run, or here for several runs."""
    json: JsonFlag = False

    def run(self, out: Output) -> int:
        """Write it."""
        from thespis.evaluation.report import write_report

        if not self.directories:
            raise UserError("name at least one run: thespis report RUN")
        runs = [Path(name) for name in self.directories]
        default = runs[0] / "report.html" if len(runs) == 1 else Path("report.html")
        written = write_report(runs, Path(self.out) if self.out else default)
        out.say(f"report: {written}")
        out.result({"report": written, "runs": list(self.directories)})
        return 0
