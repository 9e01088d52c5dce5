"""Command ``thespis resume``: continue an interrupted run, or a finished one to more steps."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from thespis.cli.options import Count, JsonFlag, RunPath, TrustOption, optional_arg
from thespis.cli.output import CommandOutput
from thespis.cli.train_session import join_processes, make_trackers, train_silently, train_with_display
from thespis.core.errors import UserError
from thespis.runs.events import Callback


@dataclasses.dataclass(frozen=True)
class ResumeCommand:
    """Continue an interrupted run to its end, with the same results as without interruption.

    With --steps, also continue a finished run, with the same results as if it had been started with that number.
    """

    directory: RunPath
    """The run's directory, or that of an experiment in stages (docs/stages.md)."""
    steps: Annotated[Count | None, optional_arg("N")] = None
    """Continue to another total number of steps per seed (updates, when learning from a dataset)."""
    cluster: Annotated[str | None, optional_arg("HOST:PORT")] = None
    """The current address of the Ray cluster, for a run with workers in one."""
    tensorboard: Annotated[str | None, optional_arg("DIR")] = None
    """Also write TensorBoard files to this directory."""
    wandb: Annotated[str | None, optional_arg("PROJECT")] = None
    """Also log to this Weights & Biases project."""
    devices: Annotated[Count | None, optional_arg("N")] = None
    """Use another number of devices than before."""
    processes: Count = 1
    """Number of processes that run this command together, each with its own devices."""
    process: Count = 0
    """Index of this process, 0 .. N-1: process 0 writes and prints."""
    coordinator: Annotated[str | None, optional_arg("HOST:PORT")] = None
    """Address for the processes to connect: the host of process 0, and a free port."""
    trust: TrustOption = ()
    """A module whose code a run may use, besides that of Thespis; can be repeated (docs/runs.md)."""
    json: JsonFlag = False
    quiet: bool = False
    """No progress: only warnings and the result."""

    def run(self, out: CommandOutput) -> int:
        """Continue the run from its latest checkpoint."""
        from thespis.runs.stages_directory import has_stages

        if has_stages(self.directory) and (self.processes > 1 or self.tensorboard or self.wandb):
            raise UserError("stages are trained by one process, without --processes, --tensorboard and --wandb")
        is_main = join_processes(self.coordinator, self.processes, self.process)
        trackers = make_trackers(self.tensorboard, self.wandb) if is_main else []
        from thespis import api

        def resume_run(listening: list[Callback]) -> api.Run:
            resources = {"devices": self.devices, "cluster": self.cluster}
            return api.resume(self.directory, steps=self.steps, **resources, callbacks=listening)

        return (
            train_with_display(out, resume_run, quiet=self.quiet, trackers=trackers)
            if is_main
            else train_silently(resume_run)
        )
