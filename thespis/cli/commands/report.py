"""Command ``thespis report``: HTML reports of runs."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from thespis.cli.options import JsonFlag, RunPaths, TrustOption, optional_arg
from thespis.cli.output import CommandOutput, print_stderr
from thespis.core.errors import DamagedCheckpointWarning, UserError

if TYPE_CHECKING:
    from thespis.evaluation.policy_film import Film


@dataclasses.dataclass(frozen=True)
class ReportCommand:
    """Write a report of one run, or of several side by side, as one self-contained HTML file."""

    directories: RunPaths
    """Directories of runs."""
    out: Annotated[str | None, optional_arg("FILE")] = None
    """The file; by default report.html in the run, or in the current directory for several runs."""
    no_film: bool = False
    """Do not record an episode for the report; one that was recorded before is shown."""
    trust: TrustOption = ()
    """A module whose code the film may use, besides that of Thespis; can be repeated (docs/runs.md)."""
    json: JsonFlag = False

    def run(self, out: CommandOutput) -> int:
        """Write the report of the given runs."""
        from rich.text import Text

        from thespis.evaluation.report import write_report
        from thespis.runs.checkpoint import damaged_checkpoints

        if not self.directories:
            raise UserError("name at least one run: thespis report RUN")
        runs = [Path(name) for name in self.directories]
        default = runs[0] / "report.html" if len(runs) == 1 else Path("report.html")
        target = Path(self.out) if self.out else default
        written = write_report(runs, target)  # before the films, during which the user's own code can fail
        films: list[Film | None] = []
        if not self.no_film:
            films = [_record_film(run) for run in runs]
            written = write_report(runs, target)
        damaged = [line for run in runs for line in damaged_checkpoints(run / "checkpoints")]
        for line in damaged:
            print_stderr(f"warning: {line}")
        out.print(f"report   {written}")
        for run, film in zip(runs, films, strict=False):
            if film is not None:
                out.print(Text(f"film     {run}: {film.caption}" if len(runs) > 1 else f"film     {film.caption}"))
        result = {"report": written, "runs": list(self.directories), "warnings": damaged}
        out.write_result(result | {"films": [film and film.caption for film in films]})
        return 0


def _record_film(run: Path) -> Film | None:
    """The film of a run, as :meth:`thespis.evaluation.run.Run.film`; what must not be read is the reason of none."""
    from thespis import api
    from thespis.evaluation.policy_film import Film

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamagedCheckpointWarning)  # the command names all of them
        try:
            return api.load(run).film()
        except UserError as error:
            return Film(step=0, reason=str(error))
