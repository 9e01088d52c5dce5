"""``thespis resume``."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from thespis.cli.options import JsonFlag, RunPath, optional
from thespis.cli.output import Output
from thespis.cli.training import show, trackers


@dataclasses.dataclass(frozen=True)
class Resume:
    """Continue an interrupted run to its end, as if it had not been interrupted."""

    directory: RunPath
    """The run's directory."""
    cluster: Annotated[str | None, optional("HOST:PORT")] = None
    """Where the Ray cluster is by now, for a run whose workers live in one."""
    tensorboard: Annotated[str | None, optional("DIR")] = None
    """Write TensorBoard files there as well."""
    wandb: Annotated[str | None, optional("PROJECT")] = None
    """Log to this Weights & Biases project as well."""
    json: JsonFlag = False
    quiet: bool = False
    """No progress: only warnings and the result."""

    def run(self, out: Output) -> int:
        """Continue the run."""
        listeners = trackers(self.tensorboard, self.wandb)
        from thespis import api

        return show(
            out,
            lambda listening: api.resume(self.directory, cluster=self.cluster, callbacks=listening),
            quiet=self.quiet,
            trackers=listeners,
        )
