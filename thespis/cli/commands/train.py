"""``thespis train``."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from thespis.cli.asked import Asked
from thespis.cli.options import Count, JsonFlag, optional
from thespis.cli.output import Output
from thespis.cli.training import follow, meet, show, trackers
from thespis.runs.events import Listener


@dataclasses.dataclass(frozen=True)
class Train(Asked):
    """Train a method in an environment, judge it, and write a report.

    thespis train sac --env Pendulum-v1 --steps 20000 --seeds 3
    """

    out: Annotated[str | None, optional("DIR")] = None
    """The run's directory; by default a new one under runs/."""
    devices: Count = 1
    """Devices that share the seeds, or else each seed's environments (docs/scaling.md)."""
    processes: Count = 1
    """How many processes run this command together, each with devices of its own."""
    process: Count = 0
    """Which of them this is, 0 .. N-1: 0 writes and prints."""
    coordinator: Annotated[str | None, optional("HOST:PORT")] = None
    """Where they meet: the host of process 0, and a free port."""
    workers: Count = 0
    """Processes (of Ray's) that act in host environments, each with its share of them; 0 for none beside this one.
    Results depend on their number, not on their speed."""
    cluster: Annotated[str | None, optional("HOST:PORT")] = None
    """The Ray cluster in which the workers live, or auto for the one of this machine; by default a Ray of the run's
    own on this machine."""
    cores: Count = 0
    """Threads that XLA computes with on a CPU; 0 for one a core. One is faster for small networks that learn from small
    minibatches; the last digits of wide ones depend on it."""
    tensorboard: Annotated[str | None, optional("DIR")] = None
    """Write TensorBoard files there as well."""
    wandb: Annotated[str | None, optional("PROJECT")] = None
    """Log to this Weights & Biases project as well."""
    json: JsonFlag = False
    quiet: bool = False
    """No progress: only warnings and the result."""

    def run(self, out: Output) -> int:
        """Train."""
        arguments = self.arguments()
        speaks = meet(self.coordinator, self.processes, self.process)
        listeners = trackers(self.tensorboard, self.wandb) if speaks else []
        from thespis import api

        def go(listening: list[Listener]) -> api.Run:
            where = {"devices": self.devices, "workers": self.workers, "cluster": self.cluster, "cores": self.cores}
            return api.train(**arguments, **where, out=self.out, callbacks=listening)

        return show(out, go, quiet=self.quiet, trackers=listeners) if speaks else follow(go)
