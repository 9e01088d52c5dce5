"""Command ``thespis stages``: train an experiment of several stages."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import tyro

from thespis.cli.options import JsonFlag, TrustOption, optional_arg
from thespis.cli.output import CommandOutput
from thespis.cli.train_session import train_with_display
from thespis.runs.events import Callback


@dataclasses.dataclass(frozen=True)
class StagesCommand:
    """Train several runs one after another, each of which starts with what earlier ones have learned.

    thespis stages experiment.toml --out runs/experiment
    """

    file: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="FILE.toml")]
    """The stages: a table [[stage]] for each, with a method, its environment, settings and start (docs/stages.md)."""
    out: Annotated[str | None, optional_arg("DIR")] = None
    """The directory of the experiment; by default a new one under runs/. It can be resumed: thespis resume DIR."""
    trust: TrustOption = ()
    """A module whose code a run may use, besides that of Thespis; can be repeated (docs/runs.md)."""
    json: JsonFlag = False
    quiet: bool = False
    """No progress: only warnings and the result."""

    def run(self, out: CommandOutput) -> int:
        """Train all stages and print the result of the last one."""
        from thespis import api
        from thespis.training.stages import read_stages_toml

        stages = read_stages_toml(self.file)

        def train(listening: list[Callback]) -> api.Run:
            return api.train_stages(stages, self.out, callbacks=listening)[-1]

        return train_with_display(out, train, quiet=self.quiet)
