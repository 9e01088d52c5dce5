"""Command ``thespis view``: recorded episodes in the browser."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from thespis.cli.options import Count, JsonFlag, TrustOption
from thespis.cli.output import CommandOutput
from thespis.core.errors import UserError


@dataclasses.dataclass(frozen=True)
class ViewCommand:
    """Show recorded episodes in the browser, step by step, with the critic's evaluation. Ctrl-C stops.

    thespis view runs/a runs/b
    """

    directories: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN ...")]
    """Runs, or episode records (.npz). Of a run without any, an episode is recorded first."""
    port: Count = 0
    """The port on this machine; 0 selects a free one."""
    trust: TrustOption = ()
    """A module whose code a run may use, besides that of Thespis; can be repeated (docs/runs.md)."""
    json: JsonFlag = False

    def run(self, out: CommandOutput) -> int:
        """Serve the page until interrupted."""
        if not self.directories:
            raise UserError("give the directories of runs: thespis view runs/a")
        from thespis.viewer.episodes import EpisodeLibrary
        from thespis.viewer.server import PageServer

        paths = [Path(path) for path in self.directories]
        library = EpisodeLibrary(paths)
        for path in paths:
            if path.is_dir() and not EpisodeLibrary([path]).files():
                _record(path, out)
        server = PageServer(library, None, self.port)
        out.print(f"episodes at {server.url} (Ctrl-C stops)", markup=False)
        out.write_result({"url": server.url, "episodes": len(library.files())})
        server.run()
        out.print("stopped")
        return 0


def _record(path: Path, out: CommandOutput) -> None:
    """Record a greedy episode of a run's first seed."""
    from thespis import api

    out.print(f"{path} has no recorded episode: recording one", markup=False)
    run = api.load(path)
    seed = run.config["seeds"][0]
    run.write_recording(run.record(seed), seed, "greedy")
