"""Command ``thespis train``: train a method."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from thespis.cli.options import Count, JsonFlag, TrustOption, optional_arg
from thespis.cli.output import CommandOutput
from thespis.cli.train_args import TrainArgs
from thespis.cli.train_session import join_processes, make_trackers, train_silently, train_with_display
from thespis.runs.events import Callback


@dataclasses.dataclass(frozen=True)
class TrainCommand(TrainArgs):
    """Train a method on an environment, evaluate it, and write a report.

    thespis train sac --env Pendulum-v1 --steps 20000 --seeds 3
    """

    out: Annotated[str | None, optional_arg("DIR")] = None
    """The run's directory; by default a new one under runs/."""
    devices: Count = 1
    """Number of devices, which share the seeds or else each seed's environments (docs/scaling.md)."""
    processes: Count = 1
    """Number of processes that run this command together, each with its own devices."""
    process: Count = 0
    """Index of this process, 0 .. N-1: process 0 writes and prints."""
    coordinator: Annotated[str | None, optional_arg("HOST:PORT")] = None
    """Address for the processes to connect: the host of process 0, and a free port."""
    workers: Count = 0
    """Ray processes that act in host environments, each with its share of them; 0 to act in the main process. Results
    depend on their number, not on their speed."""
    cluster: Annotated[str | None, optional_arg("HOST:PORT")] = None
    """The Ray cluster of the workers, or auto for the one of this machine; by default a new one on this machine."""
    cores: Count = 0
    """XLA's threads on a CPU; 0 for one per core. One is faster for small networks with small minibatches; for wide
    networks the last digits depend on it."""
    tensorboard: Annotated[str | None, optional_arg("DIR")] = None
    """Also write TensorBoard files to this directory."""
    wandb: Annotated[str | None, optional_arg("PROJECT")] = None
    """Also log to this Weights & Biases project."""
    trust: TrustOption = ()
    """A module whose code a run may use, besides that of Thespis; can be repeated (docs/runs.md)."""
    json: JsonFlag = False
    quiet: bool = False
    """No progress: only warnings and the result."""

    def run(self, out: CommandOutput) -> int:
        """Train the method and print the result."""
        arguments = self.train_kwargs()
        is_main = join_processes(self.coordinator, self.processes, self.process)
        trackers = make_trackers(self.tensorboard, self.wandb) if is_main else []
        from thespis import api

        def train_run(listening: list[Callback]) -> api.Run:
            resources = {"devices": self.devices, "workers": self.workers, "cluster": self.cluster, "cores": self.cores}
            return api.train(**arguments, **resources, out=self.out, callbacks=listening)

        return (
            train_with_display(out, train_run, quiet=self.quiet, trackers=trackers)
            if is_main
            else train_silently(train_run)
        )
