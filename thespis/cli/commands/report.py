"""Command ``thespis report``: HTML reports of runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from thespis.cli.options import JsonFlag, RunPaths, optional_arg
from thespis.cli.output import CommandOutput, print_stderr
from thespis.core.errors import UserError


@dataclasses.dataclass(frozen=True)
class ReportCommand:
    """Write a report of one run, or of several side by side, as one self-contained HTML file."""

    directories: RunPaths
    """Directories of runs."""
    out: Annotated[str | None, optional_arg("FILE")] = None
    """The file; by default report.html in the run, or in the current directory for several runs."""
    json: JsonFlag = False

    def run(self, out: CommandOutput) -> int:
        """Write the report of the given runs."""
        from thespis.evaluation.report import write_report
        from thespis.runs.checkpoint import damaged_checkpoints

        if not self.directories:
            raise UserError("name at least one run: thespis report RUN")
        runs = [Path(name) for name in self.directories]
        default = runs[0] / "report.html" if len(runs) == 1 else Path("report.html")
        written = write_report(runs, Path(self.out) if self.out else default)
        damaged = [line for run in runs for line in damaged_checkpoints(run / "checkpoints")]
        for line in damaged:
            print_stderr(f"warning: {line}")
        out.print(f"report: {written}")
        out.write_result({"report": written, "runs": list(self.directories), "warnings": damaged})
        return 0
