"""Progress of trials in the terminal: a line and a live display for each run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from rich.text import Text

from thespis.cli.output import CommandOutput

if TYPE_CHECKING:
    from thespis.evidence.runner import MakeCallbacks, TrialJob
    from thespis.runs.events import Callback

Outcome = TypeVar("Outcome")


def train_with_progress(out: CommandOutput, quiet: bool, train: Callable[[MakeCallbacks], Outcome]) -> Outcome:
    """What ``train`` returns, which gets the callbacks that show each run's progress; none if ``quiet``."""
    with contextlib.ExitStack() as displays:  # restores the terminal also after an error

        def make_callbacks(job: TrialJob) -> list[Callback]:
            if quiet:
                return []
            from thespis.cli.progress import LiveDisplay

            seeds = f"seeds {job.seeds[0]}-{job.seeds[-1]}"
            out.print(Text(f"{job.arm.name} on {job.env}, {seeds} ({job.number} of {job.total})"))
            return [displays.enter_context(LiveDisplay(out.console))]

        return train(make_callbacks)
