"""Trials in the terminal: one after the other, with a line and a live display for each run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from rich.text import Text

from thespis.cli.output import CommandOutput, print_stderr
from thespis.cli.train_session import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from thespis.evidence.runner import MakeCallbacks, TrialJob
    from thespis.runs.events import Callback

Outcome = TypeVar("Outcome")


def run_each(
    out: CommandOutput,
    names: Sequence[str],
    run: Callable[[str], dict[str, Any]],
    summarize: Callable[[list[dict[str, Any]]], int],
) -> int:
    """Run the trials with these names and write their records; the exit code is what ``summarize`` makes of them.

    An interrupted trial is saved and ends the command.
    """
    from thespis.evidence.runner import TrialInterrupted

    records = []
    for name in names:
        try:
            records.append(run(name))
        except TrialInterrupted:
            print_stderr(f"{name} was interrupted and is saved; run the same command to continue")
            return EXIT_INTERRUPTED
    code = summarize(records)
    out.write_result(records if len(records) > 1 else records[0])
    return code


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
