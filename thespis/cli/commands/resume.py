"""``thespis resume``."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from thespis.cli.options import Count, JsonFlag, RunPath, optional
from thespis.cli.output import Output
from thespis.cli.training import follow, meet, show, trackers
from thespis.runs.events import Listener


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
    devices: Annotated[Count | None, optional("N")] = None
    """Another number of devices than it had."""
    processes: Count = 1
    """How many processes run this command together, each with devices of its own."""
    process: Count = 0
    """Which of them this is, 0 .. N-1: 0 writes and prints."""
    coordinator: Annotated[str | None, optional("HOST:PORT")] = None
    """Where they meet: the host of process 0, and a free port."""
    json: JsonFlag = False
    quiet: bool = False
    """No progress: only warnings and the result."""

    def run(self, out: Output) -> int:
        """Continue the run."""
        speaks = meet(self.coordinator, self.processes, self.process)
        listeners = trackers(self.tensorboard, self.wandb) if speaks else []
        from thespis import api

        def go(listening: list[Listener]) -> api.Run:
            return api.resume(self.directory, devices=self.devices, cluster=self.cluster, callbacks=listening)

        return show(out, go, quiet=self.quiet, trackers=listeners) if speaks else follow(go)
